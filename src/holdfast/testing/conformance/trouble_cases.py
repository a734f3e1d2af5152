"""What every store must bear: requests and replies that get lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.api import locks as sync
from holdfast.core.effects import Swap
from holdfast.errors import Busy, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.testing.conformance.lease_cases import refused
from holdfast.testing.conformance.world import World, case
from holdfast.testing.faults import FAULTS, Fault

AFTER: tuple[tuple[Fault, ...], ...] = ((), ("fine",), ("fine", "fine"))
PASSING: tuple[Fault, ...] = tuple(fault for fault in FAULTS if fault != "hang")


@case
async def acquire_bears_any_single_fault(world: World) -> None:
    """Whatever happens to one request of an acquire, the claim ends as the only holder."""
    b = world.locks("b")
    for position in range(3):
        for fault in PASSING:
            key = world.key(f"{position}-{fault}")
            a, store = world.faulty("a")
            store.plan(*AFTER[position], fault)
            lease = await a.acquire(key, timeout=20)
            assert lease.held
            assert lease.remaining() <= world.ttl
            shown = await b.show(key)
            assert [holder.fence for holder in shown.holders] == [lease.fence], (position, fault)
            assert await lease.release() is True
            assert (await b.show(key)).free


@case
async def release_bears_any_single_fault(world: World) -> None:
    """Whatever happens to one request of a release, the lock is free and it was us."""
    b = world.locks("b")
    for position in range(2):
        for fault in PASSING:
            key = world.key(f"{position}-{fault}")
            a, store = world.faulty("a")
            lease = await a.acquire(key, ttl=60)
            store.plan(*AFTER[position], fault)
            assert await lease.release() is True, (position, fault)
            async with b.acquire(key, timeout=0):
                pass


@case
async def renewal_bears_any_single_fault(world: World) -> None:
    """A lost reply to a beat is not a theft, and a beat that failed is tried again."""
    for fault in PASSING:
        a, store = world.faulty("a")
        lease = await a.acquire(world.key(fault), ttl=60, keep=False)
        store.plan(fault)
        try:
            await lease.renew()
        except (Unavailable, OutcomeUnknown):
            await lease.renew()
        assert lease.held, fault
        assert await lease.release() is True


@case
async def hand_over_bears_any_single_fault(world: World) -> None:
    """Whatever happens to one request of a hand-over, the ticket works exactly once."""
    for fault in PASSING:
        key = world.key(fault)
        a, sending = world.faulty("a")
        b, receiving = world.faulty("b")
        first = await a.acquire(key, ttl=60)
        sending.plan(fault)
        ticket = await first.hand_over()
        receiving.plan("fine", fault)
        second = await b.take(ticket)
        assert second.held
        assert second.fence > first.fence
        assert await second.release() is True


@case
async def eviction_bears_any_single_fault(world: World) -> None:
    """Whatever happens to one request of an eviction, the holder is out, and is told of."""
    a = world.locks("a")
    for position in range(3):
        for fault in PASSING:
            key = world.key(f"{position}-{fault}")
            b, store = world.faulty("b")
            lease = await a.acquire(key, ttl=60, keep=False)
            store.plan(*AFTER[position], fault)
            (evicted,) = await b.evict(key)
            assert evicted.fence == lease.fence, (position, fault)
            assert (await a.show(key)).free, (position, fault)


@case
async def eviction_that_arrives_again_spares_a_newcomer(world: World) -> None:
    """Who gets the lock after an eviction keeps it, though its answer was lost."""
    key = world.key()
    lease = await world.locks("a").acquire(key, ttl=60, keep=False)
    b, store = world.faulty("b")
    inner, newcomer = store._store, sync.Locks(world.store(), owner="newcomer", ttl=60)
    name = "apply" if world.facts.scripted else "swap"
    real, got = getattr(inner, name), []

    def lose_the_reply(*args: Any) -> Any:
        setattr(inner, name, real)
        real(*args)
        got.append(newcomer.acquire(key, timeout=5))
        raise OutcomeUnknown("The reply was lost on purpose.")

    setattr(inner, name, lose_the_reply)
    (evicted,) = await b.evict(key)
    assert evicted.fence == lease.fence
    (heir,) = got
    assert [holder.fence for holder in (await b.show(key)).holders] == [heir.fence]
    assert heir.release() is True
    newcomer.close()


@case
async def late_write_does_not_free_or_take(world: World) -> None:
    """A write that arrives after its sender gave up changes nothing that counts."""
    key = world.key()
    captured: list[Swap] = []
    a, store = world.faulty("a")
    inner = store._store
    real = inner.swap

    def capture(*args: Any) -> Any:
        captured.append(Swap(*args))
        return real(*args)

    inner.swap = capture  # type: ignore[assignment,method-assign]
    if world.facts.scripted:
        return
    lease = await a.acquire(key, ttl=60)
    await lease.release()
    async with world.locks("b").acquire(key, timeout=0, ttl=60) as heir:
        for late in captured:
            real(late.key, late.version, late.record, late.wake)
        shown = await world.locks("c").show(key)
        assert [holder.fence for holder in shown.holders] == [heir.fence]
        await refused(world.locks("c"), key)


@case
async def store_in_trouble_is_ridden_out(world: World) -> None:
    """A wait goes on while the store fails, and succeeds when it is back."""
    key = world.key()
    a, store = world.faulty("a")
    store.plan(then="refuse")
    waiting = asyncio.ensure_future(_get(a, key, timeout=30))
    await world.pass_time(0.3)
    assert not waiting.done()
    store.plan()
    async with asyncio.timeout(20):
        assert await (await waiting).release() is True


async def _get(locks: Any, key: str, **options: Any) -> Any:
    return await locks.acquire(key, **options)


@case
async def store_that_stays_away_is_reported(world: World) -> None:
    """A try, and a wait that runs out, say that the store is to blame, and how sure it is."""
    key = world.key()
    a, store = world.faulty("a")
    blamed: dict[Fault, type[Exception]] = {
        "refuse": Unavailable,
        "lose request": OutcomeUnknown,
    }
    for fault, kind in blamed.items():
        store.plan(then=fault)
        for timeout in (0, 0.2):
            try:
                await a.acquire(key, timeout=timeout)
            except kind:
                pass
            except Busy:
                raise AssertionError("the store's trouble was blamed on somebody else") from None
            else:
                raise AssertionError("acquired through a dead store")
    store.plan()
    assert (await world.locks("b").show(key)).free


@case
async def danger_then_loss_while_a_beat_hangs(world: World) -> None:
    """A renewal that hangs delays neither the danger nor the loss."""
    key = world.key()
    a, store = world.faulty("a")
    lease = await a.acquire(key)
    told: list[str] = []
    lease.on_danger(lambda _: told.append("danger"))
    lease.on_lost(lambda _: told.append("lost"))
    store.plan(then="hang")
    await world.until(lambda: told == ["danger", "lost"], world.ttl * 3 + 10)
    assert not lease.held
    store.plan()
    store.release_hung()
    await world.pass_time(0.1)
    assert not lease.held
    try:
        lease.check()
    except LeaseLost:
        return
    raise AssertionError("a lost lease came back")


@case
async def danger_ends_when_a_beat_gets_through(world: World) -> None:
    """Failing beats are tried again until one gets through; then the danger is over."""
    key = world.key()
    events: list[str] = []
    a, store = world.faulty(
        "a", on_event=lambda event: events.append(type(event).__name__), ttl=world.ttl * 2
    )
    lease = await a.acquire(key)
    store.plan(then="refuse")
    await world.until(lambda: "InDanger" in events, world.ttl * 6 + 10)
    store.plan()
    await world.until(lambda: "OutOfDanger" in events, world.ttl * 6 + 10)
    assert lease.held
    assert await lease.release() is True


@case
async def interrupted_acquire_leaves_nothing(world: World) -> None:
    """An exception that is none of ours, in the middle of an acquire, leaves no lock."""
    key = world.key()
    a, store = world.faulty("a")
    inner = store._store
    name = "apply" if world.facts.scripted else "swap"
    real = getattr(inner, name)

    def explode(*args: Any) -> Any:
        setattr(inner, name, real)
        real(*args)
        raise ZeroDivisionError("in the middle")

    setattr(inner, name, explode)
    try:
        await a.acquire(key, ttl=60)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("the exception was swallowed")
    assert (await world.locks("b").show(key)).free
