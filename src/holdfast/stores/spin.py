"""Spinning for a reply for a moment before blocking for it.

A thread that blocks for a reply has to be woken, and on an idle machine its processor has to
wake up first: that can take longer than the whole trip to a nearby server. So a thread that has
sent a request polls its socket for a moment, and only then blocks.

Spinning is wasted where the moment is too short, because the server is far away or the machine is
busy: after a spin in vain the next ones are left out, twice as many each time. And spinning must
not slow others down: a thread spins only if no other thread waits for a reply of the same
store, and not shortly after a wait for a lock, whose holder may need this processor.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from time import monotonic

# At most so many spins in a row are left out.
MOST_LEFT_OUT = 1023

# After a wait for a lock no thread of this process spins for so long.
REST_S = 0.1

Poll = Callable[[int], Sequence[object]]


def poll_of(fileno: int) -> Poll | None:
    """Returns a function that polls this descriptor, or None where threads must not spin.

    There is no poll() on Windows. Under gevent or eventlet, which may patch after we are imported,
    a spinning thread would stop all other tasks."""
    if not hasattr(select, "poll") or select.poll.__module__ != "select":
        return None
    poller = select.poll()
    poller.register(fileno, select.POLLIN)
    return poller.poll


def rest() -> None:
    """Stop spinning in this process for a while, because a lock had to be waited for."""
    global _resting_until
    _resting_until = monotonic() + REST_S


_resting_until = 0.0


class SpinWait:
    """Spins for the replies of one server. `alone` says whether no other thread waits for one."""

    __slots__ = ("_alone", "_left_out", "_moment_s", "_to_leave_out")

    def __init__(self, moment_s: float, alone: Callable[[], bool]) -> None:
        self._moment_s = moment_s
        self._alone = alone
        self._left_out = 0  # this many more
        self._to_leave_out = 1  # after the next one in vain

    def look(self, poll: Poll | None) -> bool:
        """Spin until there is something to read, or for a moment; or not at all. Returns whether
        there is something."""
        if self._left_out:
            self._left_out -= 1
        elif poll is not None and self._alone() and (now := monotonic()) > _resting_until:
            if _seen(poll, now + self._moment_s):
                self._to_leave_out = 1
                return True
            self._left_out = self._to_leave_out
            self._to_leave_out = min(2 * self._to_leave_out + 1, MOST_LEFT_OUT)
        return False


def _seen(poll: Poll, ends_at: float) -> bool:
    while not poll(0):
        if monotonic() > ends_at:
            return False
    return True
