"""Cases for callers of one client that want one lock: in line in the process, and passed on."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.errors import AcquireTimeout, LeaseLost
from holdfast.testing.conformance.world import World, case


async def _get(locks: Any, key: str, **options: Any) -> Any:
    return await locks.acquire(key, **options)


async def _in_line(world: World, locks: Any, key: str, many: int) -> None:
    """Wait until so many callers of a client stand in line."""
    client = locks._client
    client = getattr(client, "_thing", client)
    await world.until(lambda: len(getattr(client.cohorts._by_key.get(key), "line", ())) == many, 30)


@case
async def callers_of_one_client_get_it_in_turn(world: World) -> None:
    """In the order in which they came, one at a time, each with a fence larger than all before it;
    and the next fence of another client is larger still."""
    locks, others, key = world.locks("a"), world.locks("b"), world.key()
    order, fences, inside = list[int](), list[int](), [0]
    first = await locks.acquire(key, ttl=300)

    async def take_turn(number: int) -> None:
        async with locks.acquire(key, ttl=300, owner=f"caller {number}") as lease:
            inside[0] += 1
            assert inside[0] == 1
            assert lease.held
            assert lease.owner == f"caller {number}"
            order.append(number)
            fences.append(lease.fence)
            inside[0] -= 1

    waiting = []
    for number in range(6):
        waiting.append(asyncio.ensure_future(take_turn(number)))
        await _in_line(world, locks, key, number + 1)
    assert (await others.show(key)).waiters == ()
    await first.release()
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    assert order == list(range(6))
    assert fences == sorted({first.fence, *fences})[1:]
    assert (await others.show(key)).free
    async with others.acquire(key) as after:
        assert after.fence > fences[-1]


@case
async def passed_on_lease_is_renewed_as_its_own(world: World) -> None:
    """The store learns at a renewal who has the lock now; the fence of a lease never changes."""
    locks, others, key = world.locks("a"), world.locks("b"), world.key()
    first = await locks.acquire(key, ttl=300)
    waiting = asyncio.ensure_future(_get(locks, key, ttl=300, owner="heir", note={"x": 1}))
    await _in_line(world, locks, key, 1)
    await first.release()
    async with asyncio.timeout(60):
        lease = await waiting
    fence = lease.fence
    assert fence > first.fence
    await lease.renew()
    (holder,) = (await others.show(key)).holders
    assert (holder.owner, holder.note, holder.fence) == ("heir", {"x": 1}, fence)
    assert lease.fence == fence
    (evicted,) = await others.evict(key, fence=fence)
    assert evicted.owner == "heir"
    try:
        await lease.renew()
    except LeaseLost:
        pass
    else:
        raise AssertionError("an evicted lease was renewed")


@case
async def others_get_it_between_callers_of_one_client(world: World) -> None:
    """Somebody who waits in the queue is served before the line inside of a process is through."""
    locks, others, key = world.locks("a"), world.locks("b"), world.key()
    stop, theirs = asyncio.Event(), list[int]()

    async def go_on() -> None:
        while not stop.is_set():
            async with locks.acquire(key, ttl=300):
                await asyncio.sleep(0.005)

    crowd = [asyncio.ensure_future(go_on()) for _ in range(4)]
    try:
        async with asyncio.timeout(60):
            for _ in range(2):
                async with others.acquire(key, ttl=300, fair=True) as lease:
                    theirs.append(lease.fence)
    finally:
        stop.set()
        await asyncio.gather(*crowd)
    assert theirs == sorted(set(theirs))


@case
async def caller_that_gives_up_in_line_holds_nobody_up(world: World) -> None:
    """One that times out, or is cancelled, leaves the line, and the next one gets the lock."""
    locks, key = world.locks("a"), world.key()
    lease = await locks.acquire(key, ttl=300)
    late = asyncio.ensure_future(_get(locks, key, ttl=300, timeout=0.2))
    await _in_line(world, locks, key, 1)
    after = asyncio.ensure_future(_get(locks, key, ttl=300))
    await _in_line(world, locks, key, 2)
    try:
        await late
    except AcquireTimeout as why:
        assert [holder.owner for holder in why.holders] == ["a"]
    else:
        raise AssertionError("the lock was taken")
    await lease.release()
    async with asyncio.timeout(60):
        await (await after).release()
