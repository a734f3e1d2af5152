"""Parks a caller that stands in line inside of its process, until its turn may have come.

No lost wake-up: the caller makes itself wakeable before it looks whether its turn has come, and the
one before it moves the turn before it wakes the caller.
"""

from __future__ import annotations

from functools import partial

from holdfast.core.cohorts import Member
from holdfast.runtime.flavour import ASYNC

if ASYNC:
    import asyncio
    from contextlib import suppress
else:
    from contextlib import suppress
    from queue import Empty, SimpleQueue


async def park(member: Member, seconds: float) -> None:
    """Wait until the caller is woken, or until the time is over."""
    if ASYNC:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        member.wake = partial(_wake, loop, woken)
        if member.called:
            return
        timer = loop.call_later(seconds, _set, woken)
        try:
            await woken
        finally:
            timer.cancel()
    else:
        woken: SimpleQueue[None] = SimpleQueue()
        member.wake = partial(woken.put, None)
        if not member.called:
            with suppress(Empty):
                woken.get(timeout=seconds)


if ASYNC:

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
