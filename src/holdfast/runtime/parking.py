# Made from parking_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Parks a caller that stands in line inside of its process, until its turn may have come.

No lost wake-up: the caller makes itself wakeable before it looks whether its turn has come or its
client is closed. A thread that moves the turn or closes the client does so first, and then wakes
the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from holdfast.core.effects import Park
from holdfast.core.records import SECOND


class Parking:
    """Where the callers of one client are parked. `check` raises if the client was closed."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check

    def park(self, asked: Park) -> None:
        """Wait until the caller is woken, or until the time is over."""
        member = asked.member
        woken: SimpleQueue[None] = SimpleQueue()
        member.wake = partial(woken.put, None)
        self._check()
        if not member.called:
            with suppress(Empty):
                woken.get(timeout=asked.at_most / SECOND)
        self._check()
