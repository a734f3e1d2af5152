"""When obstore can be used: not after a fork, and not without file descriptors.

It works with threads of its own. They stay behind in the parent when a process forks, and a call
in the child hangs. They start with the first call, which takes a few descriptors: if there are
none, obstore panics, and every later call of this process does too.
"""

from __future__ import annotations

import threading

import obstore
from obstore.store import MemoryStore

from holdfast.errors import Misconfigured
from holdfast.runtime import fork_hooks
from holdfast.stores.shortage import has_room_for, shortage

# What the threads need to start, and a few for others that open something at the same moment.
DESCRIPTORS = 8

_starting = threading.Lock()
_used = False
_cut_off = False


@fork_hooks.in_child
def _in_child() -> None:
    global _cut_off, _starting
    _cut_off = _used
    _starting = threading.Lock()


def about_to_use(where: str) -> None:
    """Start obstore's threads. Raises where that cannot work: in a child whose parent has used
    obstore, and where too few descriptors are left."""
    global _used
    if _cut_off:
        raise Misconfigured(
            "This process was forked from one that had used obstore, whose threads do not "
            "survive a fork: connect only in the children, or start them by spawn."
        )
    with _starting:
        if not _used:
            if not has_room_for(DESCRIPTORS):
                raise shortage(where)
            _used = True
            obstore.put(MemoryStore(), "start", b"")
