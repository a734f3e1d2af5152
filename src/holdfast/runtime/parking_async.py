"""Parks a caller that stands in line inside of its process, until its turn may have come.

No lost wake-up: the caller makes itself wakeable before it looks whether its turn has come or its
client is closed. A thread that moves the turn or closes the client does so first, and then wakes
the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.core.effects import Park
from holdfast.core.records import SECOND
from holdfast.runtime.flavour import ASYNC

if ASYNC:
    import asyncio
    from contextlib import suppress
    from math import inf
else:
    from contextlib import suppress
    from queue import Empty, SimpleQueue


class Parking:
    """Where the callers of one client are parked. `check` raises if the client was closed."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        if ASYNC:
            self._alarm: Alarm | None = None  # that of the loop on which somebody parked last

    async def park(self, asked: Park) -> None:
        """Wait until the caller is woken, or until the time is over."""
        member = asked.member
        if ASYNC:
            loop, alarm = asyncio.get_running_loop(), self._alarm
            if alarm is None or alarm.loop is not loop:
                alarm = self._alarm = Alarm(loop)
            woken = loop.create_future()
            member.wake = partial(_wake, loop, woken)
            self._check()
            if not member.called:
                alarm.set(woken, asked.at_most / SECOND)
                try:
                    await woken
                finally:
                    alarm.forget(woken)
        else:
            woken: SimpleQueue[None] = SimpleQueue()
            member.wake = partial(woken.put, None)
            self._check()
            if not member.called:
                with suppress(Empty):
                    woken.get(timeout=asked.at_most / SECOND)
        self._check()


if ASYNC:
    # Each ring looks at all who are parked. If thousands are, and their times end one after the
    # other, some of them end this much later.
    BETWEEN_RINGS_S = 0.01

    class Alarm:
        """Wakes those who are parked on one event loop when their time is over. One timer is for
        all of them: most are woken long before, and a timer of its own would cost each of them
        more than that."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.loop = loop
            self._ends: dict[asyncio.Future[None], float] = {}  # when the time of each is over
            self._rings_at = inf

        def set(self, woken: asyncio.Future[None], seconds: float) -> None:
            """Set this future when the time is over, unless it is forgotten before."""
            self._ends[woken] = ends_at = self.loop.time() + seconds
            if ends_at < self._rings_at:
                self._ring_at(ends_at)

        def forget(self, woken: asyncio.Future[None]) -> None:
            """Nobody waits for this future any more."""
            del self._ends[woken]

        def _ring_at(self, at: float) -> None:
            self._rings_at = at
            self.loop.call_at(at, self._ring, at)

        def _ring(self, at: float) -> None:
            if at != self._rings_at:
                return  # somebody came whose time was over sooner
            now, self._rings_at = max(at, self.loop.time()), inf
            for woken, ends_at in self._ends.items():
                if ends_at <= now:
                    _set(woken)
            later = [ends_at for ends_at in self._ends.values() if ends_at > now]
            if later:
                self._ring_at(max(min(later), now + BETWEEN_RINGS_S))

    def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
        """Called in any thread, and without waiting."""
        if asyncio._get_running_loop() is loop:
            _set(woken)
        else:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_set, woken)

    def _set(woken: asyncio.Future[None]) -> None:
        if not woken.done():
            woken.set_result(None)
