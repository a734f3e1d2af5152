"""Cases for those who wait: the queue, and several keys at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from holdfast.api.wants import Want
from holdfast.core.contract import Conflict
from holdfast.core.records import LONGEST_TTL, SECOND, Micros, Waiter
from holdfast.errors import (
    AcquireTimeout,
)
from holdfast.testing.conformance.lease_cases import refused
from holdfast.testing.conformance.world import World, case

# --- waiting --------------------------------------------------------------------------------


@case
async def waiter_gets_it_on_release(world: World) -> None:
    """A waiter gets in soon after the release, without waiting for the ttl."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, ttl=300)
    waiting = asyncio.ensure_future(_get(b, key, ttl=300))
    await world.pass_time(0.2)
    assert not waiting.done()
    await lease.release()
    async with asyncio.timeout(20):
        await (await waiting).release()


async def _get(locks: Any, key: str, **options: Any) -> Any:
    return await locks.acquire(key, **options)


# --- the queue ------------------------------------------------------------------------------


@case
async def queue_is_first_come_first_served(world: World) -> None:
    """Fair claims get in in the order in which they came."""
    holder, key, order = world.locks("holder"), world.key(), list[int]()
    lease = await holder.acquire(key, ttl=60)
    clients = [world.locks(f"w{i}") for i in range(4)]

    async def wait_turn(number: int) -> None:
        async with clients[number].acquire(key, fair=True, ttl=60):
            order.append(number)

    waiting = []
    for number in range(4):
        waiting.append(asyncio.ensure_future(wait_turn(number)))
        await _until_queued(world, holder, key, number + 1)
    assert [w.owner for w in (await holder.show(key)).waiters] == ["w0", "w1", "w2", "w3"]
    await refused(world.locks("late"), key)
    await lease.release()
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3]


async def _until_queued(world: World, locks: Any, key: str, count: int) -> None:
    async with asyncio.timeout(20):
        while len((await locks.show(key)).waiters) < count:
            await world.pass_time(0.02)


@case
async def writer_is_not_starved(world: World) -> None:
    """Readers who come after a waiting writer wait behind it."""
    a, b, key = world.locks("reader"), world.locks("writer"), world.key()
    reader = await a.acquire(key, mode="shared", ttl=60)
    waiting = asyncio.ensure_future(_get(b, key, fair=True, ttl=60))
    await _until_queued(world, a, key, 1)
    await refused(a, key, mode="shared")
    await reader.release()
    async with asyncio.timeout(20):
        writer = await waiting
    await refused(a, key, mode="shared")
    await writer.release()
    async with a.acquire(key, mode="shared", timeout=0):
        pass


@case
async def waiter_who_gives_up_leaves_the_queue(world: World) -> None:
    """A queued claim that times out leaves no place behind."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, ttl=60)
    with suppress(AcquireTimeout):
        await b.acquire(key, fair=True, timeout=0.2, ttl=60)
    assert (await a.show(key)).waiters == ()
    await lease.release()
    async with a.acquire(key, timeout=0):
        pass


@case
async def dead_waiter_drops_out(world: World) -> None:
    """A queued claim whose client vanished holds nobody up for longer than its ttl."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, ttl=60)
    _queue_up_a_ghost(world, key, round(world.ttl * SECOND))
    await lease.release()
    await refused(b, key)
    async with asyncio.timeout(world.ttl * 5 + 20):
        async with b.acquire(key):
            pass


def _queue_up_a_ghost(world: World, key: str, lasts: Micros) -> None:
    """Put a place into the queue that nobody renews, past the client."""
    store = world.store()
    while True:
        entry = store.load(key)
        at = entry.now.latest if entry.now is not None else 0
        ghost = Waiter("g", "ghost", "exclusive", lasts, at, at and at + lasts, "x")
        record = replace(entry.record, queue=(ghost,))
        if not isinstance(store.swap(key, entry.version, record), Conflict):
            return


@case
async def waiters_can_be_evicted(world: World) -> None:
    """A queue behind a place that does not run out for days is freed by an operator."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, ttl=60)
    _queue_up_a_ghost(world, key, LONGEST_TTL // 2)
    (ghost,) = await b.evict(key, waiters=True)
    assert ghost.owner == "ghost"
    assert lease.held
    assert await b.evict(key, waiters=True) == ()
    await lease.renew()
    await lease.release()
    async with b.acquire(key, timeout=0):
        pass
    _queue_up_a_ghost(world, key, LONGEST_TTL // 2)
    await refused(b, key)  # it is free, and kept for the ghost
    assert len(await b.evict(key, waiters=True)) == 1
    async with b.acquire(key, timeout=0):
        pass


@case
async def impossible_place_holds_up_nobody(world: World) -> None:
    """A place that would last longer than the longest ttl was forged, or the clock has jumped."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, ttl=60)
    _queue_up_a_ghost(world, key, 2 * LONGEST_TTL)
    await lease.renew()
    await lease.release()
    async with b.acquire(key, timeout=20):
        pass
    _queue_up_a_ghost(world, key, 2 * LONGEST_TTL)
    async with b.acquire(key, timeout=0):
        pass


@case
async def holder_learns_that_it_is_wanted(world: World) -> None:
    """Who waits in the queue is known to the holder at its next beat."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key)
    told: list[Any] = []
    lease.on_wanted(told.append)
    assert lease.wanted == ()
    waiting = asyncio.ensure_future(_get(b, key, fair=True, owner="the full refresh"))
    await world.until(lambda: told, world.ttl * 3 + 10)
    assert [waiter.owner for waiter in lease.wanted] == ["the full refresh"]
    await lease.release()
    async with asyncio.timeout(20):
        await (await waiting).release()


# --- many keys ------------------------------------------------------------------------------


@case
async def all_or_none(world: World) -> None:
    """Several keys are acquired together; if one is taken, none is kept."""
    a, b = world.locks("a"), world.locks("b")
    keys = [world.key(name) for name in "cab"]
    async with a.acquire_all([keys[0], Want(keys[1], mode="shared"), keys[2]]) as leases:
        assert [lease.key for lease in leases] == keys
        assert leases[keys[1]].mode == "shared"
        async with b.acquire(keys[1], mode="shared", timeout=0):
            pass
        for key in keys:
            await refused(b, key)
    async with b.acquire(keys[0], timeout=0):
        try:
            await a.acquire_all(keys, timeout=0.1)
        except AcquireTimeout:
            pass
        else:
            raise AssertionError("got a taken lock")
        for key in keys[1:]:
            async with b.acquire(key, timeout=0):
                pass


@case
async def all_in_any_order_never_deadlocks(world: World) -> None:
    """Clients who name the same keys in opposite orders both get them."""
    keys = [world.key(name) for name in "abc"]

    async def work(locks: Any, order: list[str]) -> None:
        for _ in range(5):
            async with locks.acquire_all(order, ttl=max(10, world.ttl)):
                await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(
            work(world.locks("a"), keys), work(world.locks("b"), list(reversed(keys)))
        )
