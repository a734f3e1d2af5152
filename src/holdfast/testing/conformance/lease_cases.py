"""What every store must give its users: the lock, as the faces show it."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.contract import Conflict
from holdfast.core.records import RANGE
from holdfast.errors import (
    AcquireTimeout,
    Busy,
    ClientClosed,
    LeaseLost,
    LimitMismatch,
)
from holdfast.testing.conformance.world import World, case


async def listed(items: Any) -> list[Any]:
    """All of a listing."""
    return [item async for item in items]


async def refused(locks: Any, key: str, **options: Any) -> None:
    """Check that somebody else holds this."""
    assert await locks.try_acquire(key, **options) is None


# --- one holder -----------------------------------------------------------------------------


@case
async def exclusive_excludes(world: World) -> None:
    """While one holds, nobody else gets in, from the same client or another."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    async with a.acquire(key) as lease:
        assert lease.held
        await refused(a, key)
        await refused(b, key)
        await refused(b, key, mode="shared")
        await refused(b, key, limit=5)
    assert not lease.held
    async with b.acquire(key, timeout=0) as other:
        assert other.fence > lease.fence


@case
async def busy_says_who(world: World) -> None:
    """A refused claim and one that timed out say who is in the way."""
    a, b, key = world.locks("alice"), world.locks("bob"), world.key()
    async with a.acquire(key):
        for timeout, kind in ((0, Busy), (0.1, AcquireTimeout)):
            try:
                await b.acquire(key, timeout=timeout)
            except Busy as busy:
                assert type(busy) is kind
                assert "alice" in str(busy)
                assert [holder.owner for holder in busy.holders] == ["alice"]
            else:
                raise AssertionError("two holders")


@case
async def readers_share(world: World) -> None:
    """Shared leases go together; an exclusive one waits for the last of them."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    one = await a.acquire(key, mode="shared")
    two = await b.acquire(key, mode="shared", timeout=0)
    await refused(b, key)
    await one.release()
    await refused(a, key)
    await two.release()
    async with a.acquire(key, timeout=0):
        await refused(b, key, mode="shared")


@case
async def permits_are_counted(world: World) -> None:
    """As many hold at once as there are permits, and no more."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    held = [await (a, b)[i % 2].acquire(key, limit=3, timeout=0) for i in range(3)]
    await refused(a, key, limit=3)
    await refused(a, key)
    assert len({lease.fence for lease in held}) == 3
    await held[1].release()
    held[1] = await b.acquire(key, limit=3, timeout=0)
    await refused(a, key, limit=3)
    for lease in held:
        await lease.release()


@case
async def limits_must_agree(world: World) -> None:
    """A claim that counts to another number than the holders is a mistake, and says so."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    async with a.acquire(key, limit=3):
        try:
            await b.acquire(key, limit=4, timeout=5)
        except LimitMismatch as mismatch:
            assert "3" in str(mismatch)
        else:
            raise AssertionError("counted to two limits")
    async with b.acquire(key, limit=4, timeout=0):
        pass


@case
async def many_at_once_lose_nothing(world: World) -> None:
    """Clients who count up a number under the lock lose no count."""
    key, number, inside = world.key(), [0], [0]

    async def work(locks: Any) -> None:
        for _ in range(5):
            async with locks.acquire(key, ttl=max(10, world.ttl)):
                inside[0] += 1
                assert inside[0] == 1
                read = number[0]
                await asyncio.sleep(0.001)
                number[0] = read + 1
                inside[0] -= 1

    await asyncio.gather(*(work(world.locks(f"w{i}")) for i in range(4)))
    assert number == [20]


# --- time -----------------------------------------------------------------------------------


@case
async def dead_holder_is_succeeded(world: World) -> None:
    """A lease that nobody renews runs out, and a waiter gets in with a larger fence."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    dead = await a.acquire(key, keep=False)
    async with asyncio.timeout(world.ttl * 5 + 10):
        heir = await b.acquire(key)
    assert not dead.held
    assert heir.held
    assert heir.fence > dead.fence
    await heir.release()


@case
async def keeper_keeps(world: World) -> None:
    """A lease outlives its ttl while its holder lives."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    async with a.acquire(key) as lease:
        await world.expire()
        assert lease.held
        assert 0 < lease.remaining() <= world.ttl
        await refused(b, key)


@case
async def loss_is_told(world: World) -> None:
    """A lease that runs out says so by itself, and stays lost."""
    a, key = world.locks("a"), world.key()
    lease = await a.acquire(key, keep=False)
    told: list[Any] = []
    lease.on_lost(told.append)
    await world.until(lease.lost.is_set, world.ttl * 3 + 10)
    assert not lease.held
    assert lease.remaining() == 0
    await world.until(lambda: told)
    for call in (lease.check, lease.share):
        try:
            call()
        except LeaseLost as lost:
            assert lost.key == key
        else:
            raise AssertionError("a lost lease was used")
    try:
        await lease.renew()
    except LeaseLost:
        pass
    else:
        raise AssertionError("a lost lease came back")
    assert await lease.release() is False


@case
async def renew_extends(world: World) -> None:
    """Renewing by hand does what the keeper does."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, keep=False)
    for _ in range(4):
        await world.pass_time(world.ttl / 3)
        await lease.renew()
    assert lease.remaining() > world.ttl / 2
    await refused(b, key)
    await lease.release()


@case
async def max_hold_ends_renewal(world: World) -> None:
    """A lease with a `max_hold` is renewed no longer than that."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, max_hold=world.ttl / 2)
    async with asyncio.timeout(world.ttl * 5 + 10):
        async with b.acquire(key):
            assert not lease.held
    await world.until(lease.lost.is_set)


@case
async def loss_in_a_block_is_raised_at_its_end(world: World) -> None:
    """A block that ends well under a lost lease raises; one that failed keeps its error."""
    a, key = world.locks("a"), world.key()
    try:
        async with a.acquire(key) as lease:
            await a.evict(key)
            await world.until(lease.lost.is_set, world.ttl * 3 + 10)
    except LeaseLost:
        pass
    else:
        raise AssertionError("the loss was kept quiet")
    try:
        async with a.acquire(key) as lease:
            await a.evict(key)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


# --- release --------------------------------------------------------------------------------


@case
async def release_may_be_repeated(world: World) -> None:
    """Releasing twice is harmless, also when somebody else has it by then."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key)
    assert await lease.release() is True
    async with b.acquire(key, timeout=0):
        assert await lease.release() is False
        await refused(a, key)


@case
async def late_release_frees_nobody_else(world: World) -> None:
    """Who lost a lease and releases it late does not free its successor's."""
    a, b, c, key = world.locks("a"), world.locks("b"), world.locks("c"), world.key()
    await a.evict(key)
    late = await a.acquire(key, ttl=max(20, world.ttl * 20))
    await b.evict(key)
    async with b.acquire(key, timeout=0) as heir:
        assert await late.release() is False
        await refused(c, key)
        assert heir.held


# --- look and rule --------------------------------------------------------------------------


@case
async def listing_shows_holders_and_waiters(world: World) -> None:
    """Holders, waiters and notes can be seen, by prefix and by key."""
    a, b = world.locks("a"), world.locks("b")
    held = [await a.acquire(world.key(f"x{i}"), note={"run": i}) for i in range(3)]
    other = await b.acquire(world.key("y"), limit=2)
    found = await listed(b.holders(world.key("x")))
    assert [holder.key for holder in found] == [lease.key for lease in held]
    assert [holder.fence for holder in found] == [lease.fence for lease in held]
    assert [holder.note for holder in found] == [{"run": 0}, {"run": 1}, {"run": 2}]
    assert {holder.owner for holder in found} == {"a"}
    for lease in (*held, other):
        await lease.release()
    assert await listed(b.list(world.key(""))) == []
    assert len(await listed(b.list(world.key(""), free=True))) == 4
    shown = await b.show(world.key("x1"))
    assert shown.free
    assert shown.fence >= held[1].fence


@case
async def listing_and_purging_take_every_prefix(world: World) -> None:
    """A prefix that would mean something to a file system or in a URL means itself."""
    locks = world.locks()
    for prefix in (".", "..", "/", "//", "./", "../", "%", "\\", "?", "#"):
        key = f"{prefix}{world.run}"
        lease = await locks.acquire(key)
        assert key in [lock.key for lock in await listed(locks.list(prefix))], prefix
        assert [lock.key for lock in await listed(locks.holders(key))] == [key], prefix
        await lease.release()
        if world.facts.clock != "observed":  # without a clock nothing may be dropped
            assert await locks.purge(key) == 0, prefix
            await locks.purge(prefix)  # others may have left something old that begins so
            kept = await listed(locks.list(key, free=True))
            assert [lock.key for lock in kept] == [key], prefix
        assert (await locks.show(prefix)).free, prefix


@case
async def listing_shows_no_dead_holder(world: World) -> None:
    """Who has run out is not shown as holding, but as having run out: also when it was replaced."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key, keep=False)
    await b.show(key)
    await world.expire()
    seen = await b.show(key)
    assert seen.free
    assert await listed(b.holders(key)) == []
    await (await b.acquire(key, timeout=30)).release()
    for shown in (seen, await b.show(key)):
        past = [(one.what, one.owner, one.fence) for one in shown.history]
        assert past == ([("expired", "a", lease.fence)] if b.facts.history else [])


@case
async def eviction_is_told_and_fenced(world: World) -> None:
    """An operator throws the holder out; it learns it, and the next fence is larger."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key)
    assert await b.evict(key, fence=lease.fence - 1) == ()
    assert await b.evict(key, fence=(await b.show(key)).fence + 1) == ()
    assert lease.held
    (evicted,) = await b.evict(key, fence=lease.fence)
    assert evicted.owner == "a"
    assert (await b.show(key)).fence > lease.fence
    async with b.acquire(key, timeout=0) as heir:
        assert heir.fence > lease.fence
        await world.until(lease.lost.is_set, world.ttl * 3 + 10)
        assert await b.evict(world.key("unused")) == ()


@case
async def fence_grows_when_the_record_was_dropped(world: World) -> None:
    """The fence goes on growing after its record is gone."""
    if world.facts.clock == "observed":
        return
    locks, store, key, fences = world.locks("a"), world.store(), world.key(), []
    doubt = store.facts.clock_doubt
    for _ in range(3):
        async with world.locks("fresh").acquire(key) as lease:
            fences.append(lease.fence)
        ((_, entry),) = store.scan(key, None, 1).entries
        gone_from = entry.record.fence + RANGE  # as purge
        while entry.now is not None and entry.now.earliest - doubt <= gone_from:
            await world.pass_time(0.01)
            ((_, entry),) = store.scan(key, None, 1).entries
        assert not isinstance(store.swap(key, entry.version, None), Conflict)
        async with locks.acquire(key) as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


@case
async def closed_client_says_so(world: World) -> None:
    """A closed client refuses to work. It gives its leases back, but those that it shared."""
    a, b, key, shared = world.locks("a"), world.locks("b"), world.key(), world.key("shared")
    lease = await a.acquire(key, ttl=60)
    also = await a.acquire(shared, ttl=60)
    also.share()
    await a.close()
    await a.close()
    assert not lease.held
    assert lease.lost.is_set() or world.face == "async"
    assert await lease.release() is False
    try:
        await a.acquire(key)
    except ClientClosed:
        pass
    else:
        raise AssertionError("a closed client worked")
    await refused(b, shared)
    async with b.acquire(key, timeout=0):
        pass
