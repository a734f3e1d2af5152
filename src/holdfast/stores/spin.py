"""Looking for an answer before sleeping for it.

Whoever sleeps for an answer has to be woken, and on a machine with little else to do its
processor has to wake up first: that can take longer than the whole trip to a server near by.
So a thread that has asked looks by itself for a moment, and only then goes to sleep.

That would be a waste where the moment is too short, because the server is far away or the
machine is busy: after a look in vain the next ones are left out, twice as many each time. And
it would be in the way of others: nobody looks beside other threads that work with the same
store, nor while locks have to be waited for, as their holders may need this processor.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from time import monotonic

# So many looks in a row are left out at most.
MOST_LEFT_OUT = 1023

# After a wait for a lock nobody looks for so long.
REST_S = 0.1

Poll = Callable[[int], Sequence[object]]


def poll_of(fileno: int) -> Poll | None:
    """What says whether there is something to read, if it can be asked.

    Not on Windows; and not under gevent or eventlet, which may come after us: there other tasks
    would stand still."""
    if not hasattr(select, "poll") or select.poll.__module__ != "select":
        return None
    poller = select.poll()
    poller.register(fileno, select.POLLIN)
    return poller.poll


def rest() -> None:
    """A lock had to be waited for: in this process nobody looks for a while."""
    global _resting_until
    _resting_until = monotonic() + REST_S


_resting_until = 0.0


class SpinWait:
    """At the answers of one server. `alone` says whether nobody else waits for one."""

    __slots__ = ("_alone", "_left_out", "_moment_s", "_to_leave_out")

    def __init__(self, moment_s: float, alone: Callable[[], bool]) -> None:
        self._moment_s = moment_s
        self._alone = alone
        self._left_out = 0  # this many more
        self._to_leave_out = 1  # after the next one in vain

    def look(self, poll: Poll | None) -> None:
        """Return when there is something to read, or after a moment."""
        if self._left_out:
            self._left_out -= 1
        elif poll is not None and self._alone() and (now := monotonic()) > _resting_until:
            if _seen(poll, now + self._moment_s):
                self._to_leave_out = 1
            else:
                self._left_out = self._to_leave_out
                self._to_leave_out = min(2 * self._to_leave_out + 1, MOST_LEFT_OUT)


def _seen(poll: Poll, ends_at: float) -> bool:
    while not poll(0):
        if monotonic() > ends_at:
            return False
    return True
