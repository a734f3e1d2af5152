# Made from parking_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Parks a caller that stands in line inside of its process, until its turn may have come.

No lost wake-up: the caller makes itself wakeable before it looks whether its turn has come, and the
one before it moves the turn before it wakes the caller.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from holdfast.core.cohorts import Member


class Parking:
    """Where the callers of one client are parked."""

    def park(self, member: Member, seconds: float) -> None:
        """Wait until the caller is woken, or until the time is over."""
        woken: SimpleQueue[None] = SimpleQueue()
        member.wake = partial(woken.put, None)
        if not member.called:
            with suppress(Empty):
                woken.get(timeout=seconds)
