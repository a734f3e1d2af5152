"""Parked tasks: each is woken by somebody, or when its own time is over."""

from __future__ import annotations

import asyncio

from holdfast.runtime.parking_async import Alarm


async def wait(alarm: Alarm, woken: asyncio.Future[None], seconds: float) -> None:
    """As `Parking.park`."""
    alarm.set(woken, seconds)
    try:
        await woken
    finally:
        alarm.forget(woken)


def test_each_is_woken_when_its_own_time_is_over() -> None:
    """Whoever came first, and although one timer is for all of them."""

    async def main() -> Alarm:
        loop = asyncio.get_running_loop()
        alarm = Alarm(loop)
        long = asyncio.ensure_future(wait(alarm, loop.create_future(), 3600))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            for _ in range(3):
                waits = [wait(alarm, loop.create_future(), seconds) for seconds in (0.05, 0.01)]
                await asyncio.gather(*waits)
        assert not long.done()
        assert len(alarm._ends) == 1
        long.cancel()
        await asyncio.wait([long])
        return alarm

    assert asyncio.run(main())._ends == {}


def test_who_is_woken_or_cancelled_does_not_wait_for_its_time() -> None:
    """And nothing of it is kept."""

    async def main() -> Alarm:
        loop = asyncio.get_running_loop()
        alarm, woken = Alarm(loop), loop.create_future()
        one = asyncio.ensure_future(wait(alarm, woken, 3600))
        other = asyncio.ensure_future(wait(alarm, loop.create_future(), 3600))
        await asyncio.sleep(0)
        woken.set_result(None)
        other.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait([one, other])
        assert not one.cancelled()
        assert other.cancelled()
        return alarm

    assert asyncio.run(main())._ends == {}
