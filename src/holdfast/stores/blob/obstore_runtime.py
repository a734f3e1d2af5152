"""When obstore can be used: not after a fork, and not without file descriptors.

It works with threads of its own. They stay behind in the parent when a process forks, and a call
in the child hangs. They start with the first call, which takes a few descriptors: if there are
none, obstore panics, and every later call of this process does too.
"""

from __future__ import annotations

import os
import threading

import obstore
from obstore.store import MemoryStore

from holdfast.errors import ClientForked
from holdfast.runtime import fork_hooks
from holdfast.stores.shortage import has_room_for, shortage

# What the threads need to start, and a few for others that open something at the same moment.
DESCRIPTORS = 8

_starting = threading.Lock()
_used_in: int | None = None  # the process in which its threads run


@fork_hooks.in_child
def _in_child() -> None:
    global _starting
    _starting = threading.Lock()


def about_to_use(where: str) -> None:
    """Start obstore's threads, unless they run. Raises where that cannot work: in a child whose
    parent has used obstore, and where too few descriptors are left."""
    global _used_in
    if _used_in == os.getpid():
        return
    if _used_in is not None:
        raise ClientForked(
            "This process was forked from one that had used obstore, whose threads do not "
            "survive a fork: use locks in buckets only in the children, or start them by spawn."
        )
    with _starting:
        if _used_in is None:
            if not has_room_for(DESCRIPTORS):
                raise shortage(where)
            _used_in = os.getpid()
            obstore.put(MemoryStore(), "start", b"")
