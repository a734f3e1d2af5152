"""Cancellation at any await: the caller has the lease, or it is freed, or the ttl frees it; and
the cancellation is never swallowed."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import AcquireTimeout, Busy, OutcomeUnknown, Unavailable, UsageError
from holdfast.aio import Lease, Leases, Locks, connect
from holdfast.core.events import GaveUp, StoreTrouble
from holdfast.core.records import NEVER
from holdfast.stores.async_adapters import InlineStore, ThreadedStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from tests.helpers import unique, until


class CancellingStore(InlineStore):
    """Cancels the current task at the n-th call, before or after its work, and lets the loop
    deliver it there."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.at = -1
        self.when = "before"
        self.times = 1
        self.cancelled = False

    async def _point(self, when: str) -> None:
        if when == "before":
            self.at -= 1
        if self.at == -1 and when == self.when and not self.cancelled:
            self.cancelled = True
            task = asyncio.current_task()
            assert task is not None
            for _ in range(self.times):
                task.cancel()
        await asyncio.sleep(0)

    async def load(self, key: str, by: Any = NEVER) -> Any:
        await self._point("before")
        answer = await super().load(key, by)
        await self._point("after")
        return answer

    async def swap(
        self, key: str, version: Any, record: Any, wake: Any = (), by: Any = NEVER
    ) -> Any:
        await self._point("before")
        answer = await super().swap(key, version, record, wake, by)
        await self._point("after")
        return answer

    async def wait(self, key: str, version: Any, token: str, at_most: int) -> None:
        await self._point("before")
        await super().wait(key, version, token, at_most)


class CancellableMemory(MemoryStore):
    """A memory store whose asyncio face can be made to cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.face = CancellingStore(self)

    def to_async(self) -> Any:
        return self.face


Act = Callable[[Locks, Any], Awaitable[Any]]


async def nothing(locks: Locks) -> Any:
    """Nothing to prepare."""


async def a_lease(locks: Locks) -> Any:
    """A lease."""
    return await locks.acquire("k", ttl=60)


async def a_handed_over(locks: Locks) -> Any:
    """A ticket of a hand-over."""
    return await (await locks.acquire("k", ttl=60)).hand_over()


async def a_shared(locks: Locks) -> Any:
    """A lease and a ticket for it."""
    lease = await locks.acquire("k", ttl=60)
    return lease, lease.share()


async def a_group(locks: Locks) -> Any:
    """Several leases."""
    return await locks.acquire_all(["k", "l"], ttl=60)


async def awaited(thing: Awaitable[Any]) -> Any:
    """As a coroutine."""
    return await thing


ACTS: dict[str, tuple[Callable[[Locks], Awaitable[Any]], Act]] = {
    "acquire": (nothing, lambda locks, _: awaited(locks.acquire("k", ttl=60))),
    "acquire_all": (nothing, lambda locks, _: awaited(locks.acquire_all(["k", "l"], ttl=60))),
    "release": (a_lease, lambda locks, lease: lease.release()),
    "leave": (a_lease, lambda locks, lease: lease.__aexit__(None, None, None)),
    "leave group": (a_group, lambda locks, group: group.__aexit__(None, None, None)),
    "hand_over": (a_lease, lambda locks, lease: lease.hand_over()),
    "take": (a_handed_over, lambda locks, ticket: locks.take(ticket)),
    "join": (a_shared, lambda locks, both: locks.join(both[1])),
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("act", ACTS)
def test_at_every_await(act: str, when: str, times: int) -> None:
    """Wherever it hits: the cancellation comes through, and nothing is left in the store."""
    hits = asyncio.run(_at_every_await(act, when, times))
    assert hits >= 1


async def _at_every_await(act: str, when: str, times: int) -> int:
    prepare, run = ACTS[act]
    for point in range(20):
        store = CancellableMemory()
        async with Locks(store) as locks:
            prepared = await prepare(locks)
            store.face.at, store.face.when, store.face.times = point, when, times
            task = asyncio.ensure_future(awaited(run(locks, prepared)))
            await asyncio.wait({task})
            if not store.face.cancelled:
                return point
            store.face.at = -1
            assert task.cancelled(), (act, point, when)
            _nothing_left(act, store, locks, prepared)
    raise AssertionError("it never ended")


def _nothing_left(act: str, store: MemoryStore, locks: Locks, prepared: Any) -> None:
    holders = [holder for key in "kl" for holder in store.load(key).record.holders]
    if act == "join":
        assert prepared[0].held
        assert [holder.fence for holder in holders] == [prepared[0].fence]
    elif act == "take":
        assert all(holder.offered for holder in holders)
    else:
        assert holders == []
        assert len(locks._client.leases.keeper) == 0


def test_timeout_around_a_wait() -> None:
    """`asyncio.timeout` around a waiting acquire gives TimeoutError, and no place in the queue."""

    async def run() -> None:
        store = MemoryStore()
        async with Locks(store) as locks, locks.acquire("k", ttl=60):
            with pytest.raises(TimeoutError) as error:
                async with asyncio.timeout(0.1):
                    await locks.acquire("k", fair=True)
            assert not isinstance(error.value, AcquireTimeout)
            assert store.load("k").record.queue == ()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    asyncio.run(run())


def test_cancelled_waiter_leaves_the_queue(tmp_path: Path) -> None:
    """The same on a store that works in threads."""

    async def run() -> None:
        async with connect(f"sqlite://{tmp_path}/locks.db") as locks, locks.acquire("k", ttl=60):
            waiting = asyncio.ensure_future(locks.acquire("k", fair=True))
            while not (await locks.show("k")).waiters:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await locks.show("k")).waiters == ()

    asyncio.run(run())


class SlowStore(MemoryStore):
    """Each write waits for a sign before it lands, as on a slow network; for threads."""

    facts = replace(MemoryStore.facts, amends=False)

    def __init__(self) -> None:
        super().__init__()
        self.slow: bool | Callable[[Any], bool] = False
        self.arrived = threading.Event()
        self.go = threading.Event()

    def swap(self, key: str, version: Any, record: Any, wake: Any = (), by: Any = NEVER) -> Any:
        """Perhaps later."""
        if self.slow is True or (self.slow and self.slow(record)):
            self.slow = False
            self.arrived.set()
            self.go.wait(10)
        return super().swap(key, version, record, wake, by)

    def to_async(self) -> Any:
        return ThreadedStore(self)


async def in_flight(store: SlowStore) -> None:
    """Wait until the write is on its way."""
    await asyncio.get_running_loop().run_in_executor(None, store.arrived.wait, 10)


@pytest.mark.parametrize("more", [0, 3])
def test_a_late_write_is_drained_and_undone(more: int) -> None:
    """A write that lands after the cancellation, however often repeated, is waited for and
    taken back before the cancellation goes on."""

    async def run() -> None:
        store = SlowStore()
        async with Locks(store) as locks:
            store.slow = True
            task = asyncio.ensure_future(locks.acquire("k", ttl=60))
            await in_flight(store)
            for _ in range(more + 1):
                task.cancel()
                await asyncio.sleep(0.01)
            assert not task.done()
            store.go.set()
            await asyncio.wait({task})
            assert task.cancelled()
            assert store.load("k").record.holders == ()
            assert store.load("k").record.freed

    asyncio.run(run())


class GoneStore(SlowStore):
    """Cannot be reached any more once the slow write has landed."""

    away = False

    def load(self, key: str, by: Any = NEVER) -> Any:
        if self.away:
            raise Unavailable("away")
        return super().load(key, by)

    def swap(self, *args: Any) -> Any:
        if self.away:
            raise Unavailable("away")
        outcome = super().swap(*args)
        self.away = self.arrived.is_set()
        return outcome


def test_a_clean_up_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ttl frees what is left, and the cancellation goes on its way."""
    monkeypatch.setattr("holdfast.runtime.cleaning.CLEAN_UP_FOR", 100_000)
    told: list[object] = []

    async def run() -> None:
        store = GoneStore()
        async with Locks(store, on_event=told.append) as locks:
            store.slow = True
            task = asyncio.ensure_future(locks.acquire("k", ttl=60))
            await in_flight(store)
            task.cancel()
            store.go.set()
            await asyncio.wait({task})
            assert task.cancelled()
            await asyncio.to_thread(until, lambda: failed in told)

    failed = StoreTrouble("k", "away", "clean up", again=False)
    asyncio.run(run())
    (gave_up,) = [event for event in told if isinstance(event, GaveUp)]
    assert gave_up.why == "cancelled"


def test_cancellation_during_the_clean_up_is_not_swallowed() -> None:
    """A cancel that comes while a call that had failed anyway cleans up is heard."""

    async def run() -> None:
        store = SlowStore()
        async with Locks(store, pass_on=False) as locks, locks.acquire("k", ttl=60):
            task = asyncio.ensure_future(locks.acquire("k", fair=True, timeout=0.2))
            while not store.load("k").record.queue:
                await asyncio.sleep(0.01)
            store.slow = lambda record: not record.queue  # it is taken out of the line again
            await in_flight(store)
            task.cancel()
            await asyncio.sleep(0.01)
            store.go.set()
            await asyncio.wait({task})
            assert task.cancelled()
            assert store.load("k").record.queue == ()

    asyncio.run(run())


def test_cancelling_a_hung_call_does_not_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that never answers is waited for only so long."""
    monkeypatch.setattr("holdfast.stores.async_adapters.DRAIN_S", 0.1)
    monkeypatch.setattr("holdfast.runtime.cleaning.CLEAN_UP_FOR", 100_000)

    async def run() -> None:
        store = FaultyStore(MemoryStore())
        async with Locks(store) as locks:
            store.plan(then="hang")
            task = asyncio.ensure_future(locks.acquire("k"))
            await asyncio.sleep(0.05)
            task.cancel()
            async with asyncio.timeout(10):
                await asyncio.wait({task})
            assert task.cancelled()
            store.plan()
            store.release_hung()

    asyncio.run(run())


def test_a_group_that_is_left_while_cancelled_is_released_whole() -> None:
    """A cancellation in the middle of leaving does not leave the rest held."""

    async def run() -> None:
        store = SlowStore()
        async with Locks(store) as locks:
            leases: Leases = await locks.acquire_all(["a", "b", "c"], ttl=60)
            store.slow = True
            task = asyncio.ensure_future(leases.release())
            await in_flight(store)
            task.cancel()
            store.go.set()
            await asyncio.wait({task})
            assert task.cancelled()
            for lease in leases:
                assert not lease.held
                assert store.load(lease.key).record.holders == ()

    asyncio.run(run())


def test_gather_and_task_groups() -> None:
    """One failure cancels the others' acquires, and their locks are free."""

    async def fail() -> None:
        await asyncio.sleep(0.05)
        raise ZeroDivisionError

    async def hold(locks: Locks, key: str) -> None:
        async with locks.acquire(key, ttl=60):
            await asyncio.sleep(10)

    async def group(locks: Locks) -> None:
        async with asyncio.TaskGroup() as tasks:
            for key in "aab":
                tasks.create_task(hold(locks, key))
            tasks.create_task(fail())

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            with pytest.raises(BaseExceptionGroup):
                await group(locks)
            assert [info.key async for info in locks.list()] == []

    asyncio.run(run())


def test_an_acquire_can_be_a_task() -> None:
    """`create_task` takes what `acquire` returns, as it takes any coroutine."""

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            lease = await asyncio.create_task(locks.acquire("k"))
            assert isinstance(lease, Lease)
            waiting = asyncio.create_task(locks.acquire("k"))
            await asyncio.sleep(0.01)
            await lease.release()
            async with asyncio.timeout(10):
                await (await waiting).release()
            assert await asyncio.wait_for(locks.acquire("k"), 5)

    asyncio.run(run())


def test_an_acquire_that_is_not_awaited_does_nothing_and_says_so() -> None:
    """A forgotten `await` leaves no lock, and is told as for any coroutine: nothing is locked."""

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            for forgotten in (locks.acquire, lambda key: locks.acquire_all([key])):
                with pytest.warns(RuntimeWarning, match="never awaited: nothing is locked"):
                    forgotten("k")
            assert (await locks.show("k")).free

    asyncio.run(run())


def test_an_acquire_that_is_used_or_closed_says_nothing() -> None:
    """Awaited, entered, a task, cancelled before its start, or closed: none was forgotten."""

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            await (await locks.acquire("k")).release()
            async with locks.acquire("k"), locks.acquire_all(["a", "b"]):
                pass
            await (await asyncio.create_task(locks.acquire("k"))).release()
            task = asyncio.create_task(locks.acquire("k"))
            task.cancel()
            await asyncio.wait([task])
            locks.acquire("k").close()
            del task
            gc.collect()
            assert (await locks.show("k")).free

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(run())
    assert [str(one.message) for one in told if one.category is RuntimeWarning] == []


def test_a_blocked_loop_keeps_its_leases(tmp_path: Path) -> None:
    """A loop that is blocked for longer than the ttl does not cost a lease."""

    async def run() -> None:
        async with connect(f"sqlite://{tmp_path}/locks.db", ttl=0.5) as locks:
            async with locks.acquire("k") as lease:
                time.sleep(1.5)
                assert lease.held
                assert await locks.try_acquire("k") is None

    asyncio.run(run())


def test_callbacks_come_on_the_loop() -> None:
    """Plain and async callbacks are called on the loop's thread, and a failing one is logged."""

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            lease = await locks.acquire("k", ttl=60)
            seen: list[tuple[str, bool]] = []
            here, done = threading.get_ident(), asyncio.Event()

            async def later(_: Lease) -> None:
                await asyncio.sleep(0)
                seen.append(("async", threading.get_ident() == here))
                done.set()

            lease.on_lost(lambda _: seen.append(("plain", threading.get_ident() == here)))
            lease.on_lost(lambda _: 1 / 0)
            lease.on_lost(later)
            await locks.evict("k")
            assert await lease.release() is False
            async with asyncio.timeout(10):
                await lease.lost.wait()
                await done.wait()
            assert seen == [("plain", True), ("async", True)]

    asyncio.run(run())


def test_a_loss_shows_at_once_to_who_asks_late() -> None:
    """The event of a lease that is already lost is set when it is first asked for."""

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            lease = await locks.acquire("k")
            await locks.evict("k")
            assert await lease.release() is False
            assert lease.lost.is_set()

    asyncio.run(run())


def test_an_acquire_is_entered_by_one_at_a_time() -> None:
    """Kept and entered like a lock of asyncio it would have to know who leaves: refused, instead
    of one that releases the lease of another. One after the other is fine."""

    async def run() -> None:
        async with connect(f"memory://{unique()}") as locks:
            reading = locks.acquire("k", mode="shared")
            for _ in range(2):
                async with reading as lease:
                    with pytest.raises(UsageError, match="each block"):
                        async with reading:
                            pass
                    assert lease.held
                assert (await locks.show("k")).free
            busy = locks.acquire("k", timeout=0)
            async with locks.acquire("k"):
                for _ in range(2):
                    with pytest.raises(Busy):
                        async with busy:
                            pass

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_loop_that_is_closed_with_leases_held(kind: str, tmp_path: Path) -> None:
    """Leases that outlive their loop give neither warnings nor errors, only their loss."""
    url = f"memory://{unique()}" if kind == "memory" else f"sqlite://{tmp_path}/locks.db"
    kept: list[Any] = []

    async def run() -> None:
        locks = connect(url, ttl=0.3)
        lease = await locks.acquire("k", keep=False)
        lease.on_lost(print)
        kept.extend([locks, lease, lease.lost])
        kept.append(asyncio.ensure_future(locks.acquire("k")))
        await asyncio.sleep(0.05)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(run())
        ends_at = time.monotonic() + 10
        while kept[1].hold.state == "held" and time.monotonic() < ends_at:
            time.sleep(0.01)
        assert kept[1].hold.state == "lost"
        assert kept[3].cancelled()
        kept[0]._client.close()
        kept.clear()
        gc.collect()


def test_unknown_outcome_is_told_apart_from_cancellation() -> None:
    """A store that loses every request raises `OutcomeUnknown`, not a cancellation."""

    async def run() -> None:
        store = FaultyStore(MemoryStore())
        async with Locks(store) as locks:
            store.plan(then="lose request")
            with pytest.raises(OutcomeUnknown):
                await locks.acquire("k", timeout=0)
            store.plan()

    asyncio.run(run())
