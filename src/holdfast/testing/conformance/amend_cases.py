"""What a store does that holds a record still while a function looks at it and changes it."""

from __future__ import annotations

import asyncio

from holdfast.core.commands import ANYONE, FREED, Decision
from holdfast.core.contract import Change, Entry, Swapped
from holdfast.core.records import EMPTY, SECOND, Record
from holdfast.errors import Unsupported
from holdfast.testing.conformance.samples import record
from holdfast.testing.conformance.world import World, case


class Stop(Exception):
    """Raised by a function that was to decide."""


async def _amends(world: World) -> bool:
    """Whether the store amends. One that does not says so when it is asked to."""
    if world.facts.amends:
        return True
    try:
        await world.raw().amend(world.key(), _to(record(1)))
    except Unsupported:
        return False
    raise AssertionError("it amends, but its facts do not say so")


def _to(new: Record | None, *wake: str) -> Change:
    return lambda entry: Decision(FREED, new, wake)


def _count_up(entry: Entry) -> Decision:
    return Decision(FREED, Record(entry.record.fence + 1))


@case
async def amend_writes_what_is_decided(world: World) -> None:
    """The function is shown what is there, and others see what it makes of it."""
    if not await _amends(world):
        return
    one, two, key = world.raw(), world.raw(), world.key()
    for fence, before in ((1, EMPTY), (2, record(1))):
        shown: list[Entry] = []

        def change(entry: Entry, shown: list[Entry] = shown, fence: int = fence) -> Decision:
            shown.append(entry)
            return Decision(FREED, record(fence))

        amended = await one.amend(key, change)
        assert [entry.record for entry in shown[-1:]] == [before]
        assert amended.decision == Decision(FREED, record(fence))
        assert (amended.entry.record, amended.entry.now) == (record(fence), shown[-1].now)
        there = await two.load(key)
        assert (there.record, there.version) == (record(fence), amended.entry.version)
        assert there.version != shown[-1].version


@case
async def amend_that_decides_nothing_writes_nothing(world: World) -> None:
    """A decision without a record leaves what is there, and tells its version."""
    if not await _amends(world):
        return
    store, key = world.raw(), world.key()
    assert (await store.amend(key, _to(None))).entry.version is None
    assert (await store.load(key)).version is None
    swapped = await store.swap(key, None, record(1))
    amended = await store.amend(key, _to(None))
    assert (amended.entry.record, amended.entry.version) == (record(1), swapped.version)
    assert (await store.load(key)).version == swapped.version


@case
async def amend_that_fails_writes_nothing(world: World) -> None:
    """What the function raises is passed on, and the store is as good as before."""
    if not await _amends(world):
        return
    store, key = world.raw(), world.key()
    swapped = await store.swap(key, None, record(1))

    def fail(entry: Entry) -> Decision:
        raise Stop

    for _ in range(3):
        try:
            await store.amend(key, fail)
        except Stop:
            pass
        else:
            raise AssertionError("the error was swallowed")
    there = await world.raw().load(key)
    assert (there.record, there.version) == (record(1), swapped.version)
    await store.amend(key, _to(record(2)))
    assert (await store.load(key)).record == record(2)


@case
async def no_amend_is_lost(world: World) -> None:
    """Many who count up one record lose no count, with amends and with swaps."""
    if not await _amends(world):
        return
    key, there = world.key(), world.raw()

    async def amend(times: int) -> None:
        store = world.raw()
        for _ in range(times):
            await store.amend(key, _count_up)

    async def swap(times: int) -> None:
        store = world.raw()
        while times:
            entry = await store.load(key)
            outcome = await store.swap(key, entry.version, Record(entry.record.fence + 1))
            times -= isinstance(outcome, Swapped)

    await asyncio.gather(*(amend(10) for _ in range(4)), swap(10), swap(10))
    assert (await there.load(key)).record.fence == 60


@case
async def amend_wakes_whom_it_lets_in(world: World) -> None:
    """A call that waits returns when an amend of another client lets it in."""
    if not await _amends(world):
        return
    one, two, key = world.raw(), world.raw(), world.key()
    for wake in (ANYONE, ("t",)):
        version = (await one.load(key)).version
        waiting = asyncio.ensure_future(one.wait(key, version, "t", 60 * SECOND))
        await world.pass_time(0.1)
        await two.amend(key, _to(Record(1), *wake))
        async with asyncio.timeout(20):
            await waiting


@case
async def amend_shows_the_clock(world: World) -> None:
    """The function is shown the store's time, not that of before the call."""
    if not await _amends(world):
        return
    store, key = world.raw(), world.key()
    before = (await store.load(key)).now
    await world.pass_time(0.05)
    amended = await store.amend(key, _to(record(1)))
    now = amended.entry.now
    assert before.earliest < now.earliest <= now.latest <= now.earliest + world.facts.clock_doubt


@case
async def amend_shows_a_fault(world: World) -> None:
    """A record that cannot be read is shown as such, and can be replaced."""
    if not await _amends(world):
        return
    store, key, shown = world.raw(), world.key(), []
    await store.swap(key, None, record(1))
    world.target.corrupt(key)

    def change(entry: Entry) -> Decision:
        shown.append(entry)
        return Decision(FREED, record(2))

    await store.amend(key, change)
    assert shown[-1].fault
    assert (await store.load(key)).record == record(2)


@case
async def cancelled_amends_are_over(world: World) -> None:
    """An amend that was cancelled has been done or never will be, and nobody waits for it."""
    if not await _amends(world) or world.face == "sync":
        return
    store, other, key = world.raw(), world.raw(), world.key()
    for turn in range(16):
        task = asyncio.ensure_future(store.amend(key, _count_up))
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        there = await other.load(key)
        await world.pass_time(0.01)
        async with asyncio.timeout(20):
            amended = await other.amend(key, _count_up)
        assert amended.entry.record.fence == there.record.fence + 1, turn
