"""Cases for an orchestrator and its remote workers: two parties on one lease, and waiting
for work that goes on without a claim to its lock."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from holdfast.errors import AcquireTimeout, BadTicket, Busy, LeaseLost, TicketRefused
from holdfast.testing.conformance.lease_cases import refused
from holdfast.testing.conformance.world import World, case

# --- two parties on one lease ---------------------------------------------------------------


@case
async def shared_ticket_keeps_alive(world: World) -> None:
    """A joined party keeps the lease alive when the first one is gone."""
    a, b, c, key = world.locks("a"), world.locks("b"), world.locks("c"), world.key()
    first = await a.acquire(key, keep=False)
    joined = await b.join(first.share())
    assert (joined.key, joined.fence, joined.owner) == (key, first.fence, "a")
    await world.expire()
    assert joined.held
    assert not first.held
    await refused(c, key)
    assert await joined.release() is False
    await refused(c, key)


@case
async def joined_party_releases_only_by_right(world: World) -> None:
    """A release by a joined party with that right ends the lease for both."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    first = await a.acquire(key)
    joined = await b.join(first.share(release=True))
    assert await joined.release() is True
    await world.until(first.lost.is_set, world.ttl * 3 + 10)
    async with b.acquire(key, timeout=0) as heir:
        assert await first.release() is False
        assert heir.held


@case
async def hand_over_gives_a_new_fence(world: World) -> None:
    """The next party takes the lease over; nobody gets between, and the fence grows."""
    a, b, c, key = world.locks("a"), world.locks("b"), world.locks("c"), world.key()
    first = await a.acquire(key, note={"step": 1})
    ticket = await first.hand_over()
    assert not first.held
    assert await first.release() is False
    await refused(c, key)
    second = await b.take(ticket)
    assert second.fence > first.fence
    assert second.owner == "b"
    assert second.note == {"step": 1}
    await refused(c, key)
    await world.expire()
    assert second.held
    assert await second.release() is True


@case
async def an_eviction_says_who_and_why(world: World) -> None:
    """The evicted holder learns who evicted it and why, and the lock remembers it."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    lease = await a.acquire(key)
    await b.evict(key, reason="it is stück", operator="ops")
    try:
        await lease.renew()
    except LeaseLost as lost:
        remembers = a.facts.history
        assert ("evicted by ops: it is stück" in lost.why) is remembers, lost.why
    else:
        raise AssertionError("an evicted lease was renewed")
    await (await b.take(await (await a.acquire(key)).hand_over())).release()
    seen = await a.show(key)
    past = [(one.what, one.owner, one.by, one.reason) for one in seen.history]
    assert past == (
        [("evicted", "a", "ops", "it is stück"), ("handed over", "a", "b", "")] if remembers else []
    )
    assert all(one.since <= one.at for one in seen.history)


@case
async def ticket_works_once(world: World) -> None:
    """A hand-over ticket that was used, or whose time is over, is refused."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    ticket = await (await a.acquire(key)).hand_over()
    await b.take(ticket)
    await _refused_ticket(b.take(ticket))
    await b.evict(key)
    expired = await (await a.acquire(key)).hand_over()
    await b.show(key)
    await world.expire()
    await _refused_ticket(b.take(expired))
    released = await a.acquire(key, timeout=world.ttl * 3)
    ticket = released.share()
    await released.release()
    await _refused_ticket(b.join(ticket))


async def _refused_ticket(using: Any) -> None:
    try:
        await using
    except TicketRefused:
        return
    raise AssertionError("a dead ticket was honoured")


@case
async def bad_tickets_are_told(world: World) -> None:
    """What is no ticket, or one of the other kind, is a mistake that says so."""
    a, key = world.locks("a"), world.key()
    lease = await a.acquire(key)
    share = lease.share()
    for use, ticket in ((a.join, share[:-3]), (a.join, "x"), (a.take, share), (a.take, "")):
        try:
            await use(ticket)
        except BadTicket:
            continue
        raise AssertionError("a bad ticket was honoured")
    await lease.release()


@case
async def first_party_alone_keeps_it(world: World) -> None:
    """A joined party that does not renew, or that leaves, costs the first one nothing."""
    a, b, c, key = world.locks("a"), world.locks("b"), world.locks("c"), world.key()
    first = await a.acquire(key)
    joined = await b.join(first.share(), keep=False)
    await world.expire()
    assert not joined.held
    assert first.held
    left = await b.join(first.share())
    assert await left.release() is False
    await refused(c, key)
    assert await first.release() is True


@case
async def release_is_told_to_the_joined_party(world: World) -> None:
    """The first party ends the lease for both, and the joined one is told why."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    first = await a.acquire(key)
    joined = await b.join(first.share())
    assert await first.release() is True
    await world.until(joined.lost.is_set, world.ttl * 3 + 10)
    assert not joined.held
    assert "released elsewhere" in joined.hold.why or "in time" in joined.hold.why
    async with a.acquire(key, timeout=0):
        assert await joined.release() is False


@case
async def late_ticket_says_who_has_it(world: World) -> None:
    """Who joins a lease that was lost and taken by another is refused, and told by whom."""
    a, b, c, key = world.locks("a"), world.locks("b"), world.locks("c"), world.key()
    lost = await a.acquire(key, keep=False)
    ticket = lost.share(release=True)
    await world.expire()
    async with c.acquire(key, timeout=world.ttl * 3 + 10) as taken:
        try:
            await b.join(ticket)
        except TicketRefused as no:
            assert (no.key, [holder.owner for holder in no.holders]) == (key, ["c"])
            assert "held by c now" in str(no)
            assert ticket not in str(no)
        else:
            raise AssertionError("a lost lease was joined")
        assert taken.held
    with suppress(TicketRefused):
        await b.join(ticket)
        raise AssertionError("a lease that is gone was joined")


# --- waiting without a claim ----------------------------------------------------------------


@case
async def waiting_until_free_claims_nothing(world: World) -> None:
    """A free lock is free at once, and a taken one says whose it is; nothing is written."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    assert (await b.wait_until_free(key)).free
    async with a.acquire(key, note={"job": 7}, ttl=60) as lease:
        for timeout, kind in ((0, Busy), (0.1, AcquireTimeout)):
            try:
                await b.wait_until_free(key, timeout)
            except Busy as busy:
                assert type(busy) is kind
                assert [holder.owner for holder in busy.holders] == ["a"]
                assert busy.holders[0].note == {"job": 7}
                assert busy.holders[0].token == ""
            else:
                raise AssertionError("a taken lock was free")
        seen = await b.show(key)
        assert seen.waiters == ()
        assert 0 <= seen.holders[0].age < 50
    assert (await b.wait_until_free(key, 0)).fence >= lease.fence


@case
async def waiting_until_free_ends_with_the_release(world: World) -> None:
    """Who waits is woken by the release, also when somebody had queued for the lock."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    first = await a.acquire(key, ttl=60)
    waiting = asyncio.ensure_future(_waited(b, key))
    next_one = asyncio.ensure_future(_held_for_a_moment(b, key))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await first.release()
    async with asyncio.timeout(30):
        await next_one
        seen = await waiting
    assert seen.free


async def _waited(locks: Any, key: str) -> Any:
    return await locks.wait_until_free(key)


async def _held_for_a_moment(locks: Any, key: str) -> None:
    async with locks.acquire(key, fair=True, ttl=60):
        await asyncio.sleep(0.05)


@case
async def waiting_until_free_ends_with_the_ttl(world: World) -> None:
    """A holder that died is waited for no longer than its ttl and the clock's doubt."""
    a, b, key = world.locks("a"), world.locks("b"), world.key()
    await a.acquire(key, keep=False)
    seen = await b.wait_until_free(key, timeout=world.ttl * 3 + 20)
    assert seen.free
    async with b.acquire(key, timeout=world.ttl * 3 + 20):
        pass
