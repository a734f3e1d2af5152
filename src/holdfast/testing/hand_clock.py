"""Time that a test moves by hand: an hour passes in a moment.

    with HandClock() as clock:
        lease = locks.acquire("k", ttl=3600)
        clock.advance(7200)

While time moves, everything happens that would happen in that time, in its order: leases are
renewed, come into danger, are lost; claims that wait look again. Time also goes on by itself, as
slowly as ever. It is the time of this process, so it is for the memory store.
"""

from __future__ import annotations

import time
from typing import Any

from holdfast.core.records import SECOND, Micros
from holdfast.runtime import clock, keeper_thread
from holdfast.stores.memory import store as memory

# How long the threads may take for what is due at one moment.
SETTLE_S = 10.0


class HandClock:
    """The clock of this process, ahead by what a test has added."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._read: Any = None
        self._wall: Any = None

    def __enter__(self) -> HandClock:
        self._read, self._wall = clock._read, clock._wall
        read, wall = self._read, self._wall
        clock._read = lambda which: read(which) + self._ahead_ns
        clock._wall = lambda: wall() + self._ahead_ns
        return self

    def __exit__(self, *exc: object) -> None:
        clock._read, clock._wall = self._read, self._wall
        self._wake()

    def advance(self, seconds: float) -> None:
        """Let this time pass, with everything that happens in it."""
        until = clock.monotonic() + round(seconds * SECOND)
        while (now := clock.monotonic()) < until:
            moment = min([until, *(at for at in _next_moments() if at > now)])
            self._ahead_ns += max(0, moment - clock.monotonic()) * 1000
            self._wake()
            self._settle()

    def _wake(self) -> None:
        for keeper in list(keeper_thread.everyone):
            keeper.wake()
        for store in list(memory.everyone):
            store.wake_everybody()

    def _settle(self) -> None:
        """Wait until the keepers have done what is due by now."""
        ends_at = time.monotonic() + SETTLE_S
        while any(keeper.has_work(clock.monotonic()) for keeper in list(keeper_thread.everyone)):
            if time.monotonic() > ends_at:
                raise TimeoutError("A renewal hangs, and time cannot go on.")
            time.sleep(0.0002)


def _next_moments() -> list[Micros]:
    moments = (keeper.next_moment() for keeper in list(keeper_thread.everyone))
    return [at for at in moments if at is not None]
