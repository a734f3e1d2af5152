"""What every store must do with records, whatever they mean."""

from __future__ import annotations

import asyncio

from holdfast.core.commands import ANYONE, NOBODY
from holdfast.core.contract import Conflict, Swapped
from holdfast.core.effects import Swap
from holdfast.core.records import EMPTY, SECOND, Holder, Record
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.runtime import clock
from holdfast.testing.conformance.samples import EXACT_KEYS, record
from holdfast.testing.conformance.world import World, case


@case
async def missing_record_is_empty(world: World) -> None:
    """A key that was never used has an empty record and no version."""
    entry = await world.raw().load(world.key())
    assert entry.record == EMPTY
    assert entry.version is None
    assert entry.fault is None


@case
async def record_comes_back_as_written(world: World) -> None:
    """A written record is read back equal, by another client too."""
    one, two, key = world.raw(), world.raw(), world.key()
    written = record(7, history=one.facts.history and not one.facts.scripted)
    swapped = await one.swap(key, None, written)
    assert isinstance(swapped, Swapped)
    for store in (one, two):
        entry = await store.load(key)
        assert entry.record == written
        assert entry.version == swapped.version


@case
async def swap_needs_the_version(world: World) -> None:
    """A swap with another version is a conflict that shows what is there."""
    store, key = world.raw(), world.key()
    first = await store.swap(key, None, record(1))
    second = await store.swap(key, first.version, record(2))
    assert isinstance(second, Swapped)
    for stale in (None, first.version):
        outcome = await store.swap(key, stale, record(3))
        assert isinstance(outcome, Conflict)
        assert outcome.entry.record == record(2)
        assert outcome.entry.version == second.version


@case
async def swap_on_a_missing_record_conflicts(world: World) -> None:
    """A swap whose record was dropped is a conflict that shows nothing."""
    store, key = world.raw(), world.key()
    first = await store.swap(key, None, record(1))
    assert isinstance(await store.swap(key, first.version, None), Swapped)
    outcome = await store.swap(key, first.version, record(2))
    assert isinstance(outcome, Conflict)
    assert outcome.entry.version is None
    assert outcome.entry.record == EMPTY


@case
async def delete_needs_the_version(world: World) -> None:
    """A record is dropped only in the version that was seen, and then there is no version."""
    store, key = world.raw(), world.key()
    first = await store.swap(key, None, record(1))
    second = await store.swap(key, first.version, record(2))
    assert isinstance(await store.swap(key, first.version, None), Conflict)
    dropped = await store.swap(key, second.version, None)
    assert isinstance(dropped, Swapped)
    assert dropped.version is None
    assert (await store.load(key)).version is None


@case
async def versions_never_repeat(world: World) -> None:
    """A version from before a deletion is worth nothing after it, with equal content too."""
    store, key = world.raw(), world.key()
    seen = []
    for turn in range(3):
        created = await store.swap(key, None, record(1, f"c{turn}"))
        changed = await store.swap(key, created.version, record(1, f"d{turn}"))
        seen += [created.version, changed.version]
        for stale in seen[:-1]:
            assert isinstance(await store.swap(key, stale, record(9)), Conflict)
        await store.swap(key, changed.version, None)
    assert len(set(seen)) == len(seen)


@case
async def keys_are_exact(world: World) -> None:
    """Keys that look alike are different locks."""
    store = world.raw()
    for number, name in enumerate(EXACT_KEYS, 1):
        assert isinstance(await store.swap(world.key(name), None, Record(number)), Swapped), name
    for number, name in enumerate(EXACT_KEYS, 1):
        assert (await store.load(world.key(name))).record.fence == number, name


@case
async def longest_key_fits(world: World) -> None:
    """A key may have as many bytes as the facts say; all of them count."""
    store = world.raw()
    room = world.facts.max_key_bytes - len(world.key(""))
    long = world.key("é" * (room // 2) + "x" * (room % 2))
    other = long[:-1] + "y"
    assert isinstance(await store.swap(long, None, Record(1)), Swapped)
    assert isinstance(await store.swap(other, None, Record(2)), Swapped)
    assert (await store.load(long)).record.fence == 1
    assert (await store.load(other)).record.fence == 2


@case
async def one_creates(world: World) -> None:
    """Of many who create a record at once, one succeeds, and the others see its record."""
    stores, key = [world.raw() for _ in range(4)], world.key()
    tries = [stores[i % 4].swap(key, None, record(i + 1)) for i in range(16)]
    outcomes = await asyncio.gather(*tries)
    winners = [i + 1 for i, outcome in enumerate(outcomes) if isinstance(outcome, Swapped)]
    assert len(winners) == 1
    for outcome in outcomes:
        if isinstance(outcome, Conflict):
            assert outcome.entry.record.fence == winners[0]


@case
async def no_swap_is_lost(world: World) -> None:
    """Many who count up one record with swaps lose no count."""
    key = world.key()

    async def count(times: int) -> None:
        store = world.raw()
        entry = await store.load(key)
        while times:
            outcome = await store.swap(key, entry.version, Record(entry.record.fence + 1))
            if isinstance(outcome, Swapped):
                times -= 1
                entry = await store.load(key)
            else:
                entry = outcome.entry

    await asyncio.gather(*(count(10) for _ in range(4)))
    assert (await world.raw().load(key)).record.fence == 40


@case
async def clock_is_as_the_facts_say(world: World) -> None:
    """Readings come with the replies, have the doubt that was stated, and go forward."""
    store, key = world.raw(), world.key()
    readings = [(await store.load(key)).now]
    swapped = await store.swap(key, None, record(1))
    readings += [swapped.now, (await store.swap(key, None, record(1))).entry.now]
    if world.facts.clock == "observed":
        assert readings == [None, None, None]
        return
    if not world.facts.clock_always:
        readings = [now for now in readings if now is not None]
        assert readings
    for now in readings:
        assert now.earliest <= now.latest <= now.earliest + world.facts.clock_doubt
    await world.pass_time(0.05)
    readings.append((await store.load(key)).now)
    latest = [now.latest for now in readings]
    assert latest == sorted(latest)
    assert latest[-1] > 1_500_000_000 * SECOND


@case
async def cancelled_calls_are_over(world: World) -> None:
    """A write that was cancelled is done soon or never, and what the store had open for it is
    good for the next call."""
    if world.face == "sync":
        return
    store, other, key, next_key = world.raw(), world.raw(), world.key(), world.key("next")
    await store.swap(next_key, None, record(1))
    version = (await store.swap(key, None, record(1))).version
    for turn in range(24):
        calls = (store.swap(key, version, record(turn + 2)), store.load(next_key))
        tasks = [asyncio.ensure_future(call) for call in calls]
        for _ in range(turn):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        there = await other.load(key)
        await world.pass_time(0.01)
        async with asyncio.timeout(20):
            assert (await store.load(next_key)).record == record(1)
            undone = await store.swap(key, there.version, record(1))
            if isinstance(undone, Conflict):  # it was too slow for the grace of a cancellation
                assert undone.entry.record == record(turn + 2), turn
                undone = await store.swap(key, undone.entry.version, record(1))
        assert isinstance(undone, Swapped), turn
        version = undone.version


@case
async def requests_give_up_in_time(world: World) -> None:
    """A request with little time left is answered, or given up with an error of ours; one with
    enough time is answered."""
    store, key = world.raw(), world.key()
    for left in (1, 100, 1000):
        try:
            await store.load(key, clock.monotonic() + left)
            await store.swap(key, None, record(1), NOBODY, clock.monotonic() + left)
        except (Unavailable, OutcomeUnknown):
            continue
    by = clock.monotonic() + 60 * SECOND
    there = await store.load(key, by)
    outcome = await store.swap(key, there.version, record(2), NOBODY, by)
    assert isinstance(outcome, (Swapped, Conflict))  # one that was given up may have come later
    assert (await store.scan(key, None, 10, by)).entries


@case
async def many_swaps_have_outcomes_of_their_own(world: World) -> None:
    """A batch of swaps is answered one by one, in order."""
    store = world.store()
    keys = [world.key(f"{i}") for i in range(4)]
    created = store.swap_many([Swap(key, None, record(1)) for key in keys])
    assert all(isinstance(outcome, Swapped) for outcome in created)
    versions = [outcome.version for outcome in created if isinstance(outcome, Swapped)]
    versions[2] = versions[0] if versions[0] != versions[2] else None
    mixed = store.swap_many(
        [Swap(key, version, record(2)) for key, version in zip(keys, versions, strict=True)]
    )
    assert [type(outcome) for outcome in mixed] == [Swapped, Swapped, Conflict, Swapped]


@case
async def many_swaps_do_what_they_say(world: World) -> None:
    """A batch of swaps of all kinds: what is there afterwards is what each outcome tells."""
    store, other = world.store(), world.raw()
    keys = [world.key(f"{i}") for i in range(8)]
    versions = [(await other.swap(key, None, record(1))).version for key in keys[:6]]
    newer = (await other.swap(keys[1], versions[1], record(2))).version
    waiting = asyncio.ensure_future(other.wait(keys[5], versions[5], "t", 60 * SECOND))
    await world.pass_time(0.1)
    swaps = [
        Swap(keys[0], versions[0], record(3)),
        Swap(keys[1], versions[1], record(3)),
        Swap(keys[2], versions[2], None),
        Swap(keys[3], None, record(3)),
        Swap(keys[4], versions[4], record(3, "é" * 40_000)),
        Swap(keys[5], versions[5], record(3), ANYONE),
        Swap(keys[6], None, record(3)),
        Swap(keys[7], versions[0], record(3)),
        Swap(keys[0], versions[0], record(4)),
    ]
    outcomes = store.swap_many(swaps)
    async with asyncio.timeout(20):
        await waiting
    done = [isinstance(outcome, Swapped) for outcome in outcomes]
    assert done == [True, False, True, False, True, True, True, False, False]
    for swap, outcome in zip(swaps[:8], outcomes, strict=False):
        there = await other.load(swap.key)
        if isinstance(outcome, Swapped):
            assert there.record == (swap.record or EMPTY), swap.key
            assert there.version == (outcome.version if swap.record else None)
        elif isinstance(outcome, Conflict):
            assert (there.record, there.version) == (outcome.entry.record, outcome.entry.version)
        else:  # of a record that is gone a store may not know whether it was there
            assert isinstance(outcome, OutcomeUnknown)
            assert swap.key == keys[7]
    assert (await other.load(keys[1])).version == newer


@case
async def long_records_come_back(world: World) -> None:
    """A record with many holders and long notes in any script is kept whole."""
    one, two, key = world.raw(), world.raw(), world.key()
    note = {"text": '名前 🔒 é " \\ \n' * 100}
    holders = tuple(
        Holder(f"{n:032x}", n, "ówner " * 20, "shared", SECOND, 1, 2, "b", None, note)
        for n in range(60)
    )
    long = Record(9, holders, updated_at=6)
    first = await one.swap(key, None, record(1))
    waiting = asyncio.ensure_future(two.wait(key, first.version, "t", 60 * SECOND))
    await world.pass_time(0.1)
    swapped = await one.swap(key, first.version, long, ANYONE)
    async with asyncio.timeout(20):
        found = await waiting
    assert found is None or (found.record, found.version) == (long, swapped.version)
    assert (await two.load(key)).record == long
    assert (await two.swap(key, None, record(2))).entry.record == long
    ((_, entry),) = (await two.scan(key, None, 10)).entries
    assert (entry.record, entry.version) == (long, swapped.version)


@case
async def corrupt_record_is_a_fault(world: World) -> None:
    """What cannot be read is reported as such, in a load and in a listing; its version works."""
    store, key = world.raw(), world.key()
    await store.swap(key, None, record(1))
    world.target.corrupt(key)
    entry = await store.load(key)
    assert entry.fault
    page = await store.scan(key, None, 10)
    assert [bool(found.fault) for _, found in page.entries] == [True]
    assert isinstance(await store.swap(key, entry.version, record(2)), Swapped)


@case
async def setup_may_be_repeated(world: World) -> None:
    """Setting a store up again, by several at once, changes nothing."""
    stores, key = [world.raw() for _ in range(3)], world.key()
    await stores[0].swap(key, None, record(1))
    await asyncio.gather(*(store.setup() for store in stores))
    assert (await stores[1].load(key)).record == record(1)
