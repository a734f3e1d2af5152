"""Whom every store wakes, and what is left when it is closed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from holdfast.core.commands import ANYONE
from holdfast.core.contract import Conflict, Swapped
from holdfast.core.records import EMPTY, SECOND
from holdfast.testing.conformance.samples import record
from holdfast.testing.conformance.world import World, case


@case
async def wait_ends_by_itself(world: World) -> None:
    """Waiting for a key that does not change ends after the time given."""
    store, key = world.raw(), world.key()
    swapped = await store.swap(key, None, record(1))
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.timeout(20):
        await store.wait(key, swapped.version, "t", 100_000)
    assert loop.time() - started >= 0.05


@case
async def wait_sees_an_earlier_change(world: World) -> None:
    """Waiting with a version that is no longer there returns at once: the record was changed, or
    dropped, or there was none."""
    store, key = world.raw(), world.key()
    first = await store.swap(key, None, record(1), ANYONE)
    async with asyncio.timeout(20):
        await store.wait(key, None, "t", 60 * SECOND)
    second = await store.swap(key, first.version, record(2), ANYONE)
    async with asyncio.timeout(20):
        await store.wait(key, first.version, "t", 60 * SECOND)
    await store.swap(key, second.version, None, ANYONE)
    async with asyncio.timeout(20):
        await store.wait(key, second.version, "t", 60 * SECOND)


@case
async def wait_sees_a_change_by_another(world: World) -> None:
    """Waiting returns early when another client lets somebody in."""
    one, two, key = world.raw(), world.raw(), world.key()
    first = await one.swap(key, None, record(1))
    waiting = asyncio.ensure_future(one.wait(key, first.version, "t", 60 * SECOND))
    await world.pass_time(0.1)
    assert not waiting.done()
    await two.swap(key, first.version, record(2), ANYONE)
    async with asyncio.timeout(20):
        found = await waiting
    if found is not None:  # it need not be known, but if it is, it is good for a swap
        there = await two.load(key)
        assert (found.record, found.version) == (there.record, there.version)
        assert isinstance(await one.swap(key, found.version, record(3)), Swapped)


@case
async def wait_ends_for_whom_a_write_names(world: World) -> None:
    """Who waits is woken by a write that names its token, by one that drops the record, and by
    one that creates it."""
    one, two, key, token = world.raw(), world.raw(), world.key(), "0123456789abcdef" * 2
    version = (await one.swap(key, None, record(1))).version
    for number, wake in enumerate(((token,), ("f" * 32, token), ANYONE, ANYONE), 2):
        written = None if number == 4 else record(number)
        waiting = asyncio.ensure_future(one.wait(key, version, token, 60 * SECOND))
        await world.pass_time(0.1)
        assert number == 5 or not waiting.done()
        version = (await two.swap(key, version, written, wake)).version
        async with asyncio.timeout(20):
            found = await waiting
        if found is not None and number < 5:
            assert (found.record, found.version) == (written or EMPTY, version), number


@case
async def wait_sees_a_change_behind_a_quiet_one(world: World) -> None:
    """A write that lets somebody in is not forgotten because of one right after that does not."""
    one, two, key = world.raw(), world.raw(), world.key()
    first = await one.swap(key, None, record(1))
    waiting = asyncio.ensure_future(one.wait(key, first.version, "t", 60 * SECOND))
    await world.pass_time(0.1)
    assert not waiting.done()
    second = await two.swap(key, first.version, record(2), ANYONE)
    await two.swap(key, second.version, record(3))
    async with asyncio.timeout(20):
        await waiting


@case
async def close_ends_waiting(world: World) -> None:
    """Who waits when the store is closed does not wait any longer."""
    store, key = world.raw(), world.key()
    swapped = await store.swap(key, None, record(1))
    waiting = asyncio.ensure_future(store.wait(key, swapped.version, "t", 60 * SECOND))
    await world.pass_time(0.1)
    assert not waiting.done()
    async with asyncio.timeout(20):
        await store.close()
        await waiting


@case
async def close_leaves_no_thread(world: World) -> None:
    """A store that is closed ends the threads that it has started."""
    before = set(threading.enumerate())
    store, key = world.raw(), world.key()
    swapped = await store.swap(key, None, record(1))
    await store.wait(key, swapped.version, "t", 100_000)
    await store.scan(key, None, 10)
    await store.close()
    await world.until(lambda: not _started_since(before), 20)


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    # Not those of this case, nor of asyncio's own pool, which ends with the loop.
    others = ("case", "asyncio")
    new = set(threading.enumerate()) - before
    return [thread for thread in new if not thread.name.startswith(others)]


@case
async def calls_leave_nothing_open(world: World) -> None:
    """However often a store is used, with success or not, it has no more open than before."""
    if not _OPEN.is_dir():
        return
    store, key = world.raw(), world.key()

    async def use(times: int) -> int:
        for number in range(times):
            swapped = await store.swap(key, None, record(number))
            assert isinstance(await store.swap(key, None, record(9)), Conflict)
            await store.scan(key, None, 2)
            await store.wait(key, swapped.version, "t", 1000)
            await store.swap(key, swapped.version, None)
            await store.load(key)
        return len(list(_OPEN.iterdir()))

    before = await use(5)
    assert await use(25) < before + 15


_OPEN = Path("/proc/self/fd")
