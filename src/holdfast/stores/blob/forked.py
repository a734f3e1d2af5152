"""obstore and forks: its threads stay behind in the parent, and a call in the child hangs."""

from __future__ import annotations

from holdfast.errors import Misconfigured
from holdfast.runtime import fork_hooks

_used = False
_cut_off = False


@fork_hooks.in_child
def _in_child() -> None:
    global _cut_off
    _cut_off = _used


def about_to_use() -> None:
    """Say so, instead of hanging, in a child whose parent has used obstore."""
    global _used
    if _cut_off:
        raise Misconfigured(
            "This process was forked from one that had used obstore, whose threads do not "
            "survive a fork: connect only in the children, or start them by spawn."
        )
    _used = True
