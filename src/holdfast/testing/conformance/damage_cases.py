"""What every store must do with a record that is damaged, or of another release."""

from __future__ import annotations

import json

from holdfast.core.records import LARGEST_FENCE, Record
from holdfast.errors import CorruptRecord
from holdfast.testing.conformance.lease_cases import listed
from holdfast.testing.conformance.world import World, case


@case
async def corrupt_record_is_left_alone(world: World) -> None:
    """A record that cannot be read stops everyone with an error, until it is evicted."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    async with a.acquire(key) as before:
        pass
    world.target.corrupt(key)
    for use in (b.acquire(key), b.show(key), world.locks("c").acquire(key, timeout=0)):
        try:
            await use
        except CorruptRecord as corrupt:
            assert corrupt.key == key
            assert "evict" in str(corrupt)
        else:
            raise AssertionError("a corrupt record was used")
    (shown,) = await listed(b.list(key))
    assert shown.fault
    await b.evict(key)
    async with b.acquire(key, timeout=0) as after:
        if world.facts.clock != "observed":
            assert after.fence > before.fence


@case
async def incomplete_record_is_left_alone(world: World) -> None:
    """Where a part of a record is missing, holders may be missing: that is no free lock."""
    locks, key = world.locks("a"), world.key()
    await world.raw().swap(key, None, Record(fence=1, updated_at=1))
    whole = {"v": 1, "fence": 1, "holders": [], "queue": [], "updated_at": 1}
    for missing in (whole.keys(), *([name] for name in whole)):
        part = {name: value for name, value in whole.items() if name not in missing}
        world.target.overwrite(key, json.dumps(part))
        try:
            await locks.acquire(key, timeout=0)
        except CorruptRecord as corrupt:
            assert "evict" in str(corrupt)
        else:
            raise AssertionError(f"a record without {missing} was used")
    await locks.evict(key)
    async with locks.acquire(key, timeout=0):
        pass


@case
async def record_of_a_newer_release_is_left_alone(world: World) -> None:
    """Whoever wrote it may hold the lock: it is not evicted either, but upgrading is advised."""
    locks, store, key = world.locks("a"), world.raw(), world.key()
    await store.swap(key, None, Record(fence=1, updated_at=1))
    whole = {"v": 2, "fence": 1, "holders": [], "queue": [], "updated_at": 1}
    for newer in (whole, {"v": 3, "fence": {"another": "kind"}}):
        world.target.overwrite(key, json.dumps(newer))
        for use in (locks.acquire(key, timeout=0), locks.show(key), locks.evict(key)):
            try:
                await use
            except CorruptRecord as corrupt:
                assert corrupt.newer
                assert "upgrade" in str(corrupt)
                assert "`holdfast evict`" not in str(corrupt)
            else:
                raise AssertionError("a record of a newer release was used")
        assert (await store.load(key)).newer
    ((_, entry),) = (await store.scan(key, None, 10)).entries
    assert entry.newer


@case
async def the_last_fence_can_be_kept_and_freed(world: World) -> None:
    """A grant with the largest fence is as good as any, and the next one is refused until somebody
    evicts: nobody writes a fence that others cannot read."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    await world.raw().swap(key, None, Record(fence=LARGEST_FENCE - 1, updated_at=1))
    last = await a.acquire(key, ttl=60, keep=False)
    assert last.fence == LARGEST_FENCE
    await last.renew()
    assert [holder.fence for holder in (await b.show(key)).holders] == [LARGEST_FENCE]
    assert await last.release() is True
    try:
        await b.acquire(key, timeout=0)
    except CorruptRecord as corrupt:
        assert "evict" in str(corrupt)
    else:
        raise AssertionError("a fence was granted that nobody can read")
    assert (await world.raw().load(key)).record.fence == LARGEST_FENCE
    await b.evict(key)
    async with b.acquire(key, timeout=0) as heir:
        assert heir.fence < LARGEST_FENCE
