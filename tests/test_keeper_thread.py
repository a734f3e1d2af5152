"""The keeper at work: thousands of leases, a cap, callbacks, and trouble."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import ClientClosed, Lease, LeaseLost
from holdfast.api.locks import Locks
from holdfast.core.effects import Swap
from holdfast.core.events import Event
from holdfast.core.records import NEVER
from holdfast.runtime import clock
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fault, FaultyStore
from tests.helpers import faulty_locks, memory_locks, until


class CountingStore(MemoryStore):
    """Counts the swaps, by the second and in all."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps = 0
        self.batches: list[int] = []
        self.seconds: Counter[int] = Counter()

    def swap(self, *args: Any) -> Any:
        """Count it."""
        self.swaps += 1
        self.seconds[int(time.monotonic())] += 1
        return super().swap(*args)

    def swap_many(self, swaps: Sequence[Swap], by: Any = NEVER) -> Any:
        """Count it."""
        self.batches.append(len(swaps))
        return super().swap_many(swaps, by)


def test_five_thousand_leases_for_ten_beats() -> None:
    """One client keeps five thousand leases alive for ten beats; nothing is lost."""
    told: list[str] = []
    store, threads = CountingStore(), threading.active_count()
    with Locks(store, ttl=8, on_event=lambda event: told.append(type(event).__name__)) as locks:
        leases = [locks.acquire(f"k{number}") for number in range(5000)]
        acquired = store.swaps
        until(lambda: store.swaps - acquired >= 50_000, 90)
        assert all(lease.held for lease in leases)
        assert set(told) == {"Started", "Acquired", "Renewed"}
        assert threading.active_count() < threads + 10
    assert max(store.batches) > 1  # they go together where the store can


def test_several_leases_on_one_key_do_not_collide() -> None:
    """Of the permits that one client holds on a key, one is renewed in the batch, and the others
    follow from its write: nobody has to look."""
    store = CountingStore()
    with Locks(store, ttl=60) as locks:
        leases = [locks.acquire(key, limit=3) for key in ("a", "b") for _ in range(3)]
        held, before = [lease.hold for lease in leases], store.swaps
        deadlines = [hold.deadline for hold in held]
        assert locks._client.leases.beat(held) == [None] * 6
        assert store.batches == [2]
        assert store.swaps - before == 6
        assert all(hold.deadline > was for hold, was in zip(held, deadlines, strict=True))


def test_cap_on_beats() -> None:
    """With a cap there are no more beats a second than that, and nobody is lost."""
    store = CountingStore()
    with Locks(store, ttl=3, beats_per_second=40) as locks:
        leases = [locks.acquire(f"k{number}") for number in range(30)]
        before, started = store.swaps, time.monotonic()
        time.sleep(2.5)
        rate = (store.swaps - before) / (time.monotonic() - started)
        assert rate <= 42
        assert all(lease.held for lease in leases)
        assert store.swaps > before + 40


def test_a_blocking_callback_holds_nobody_up() -> None:
    """Callbacks run in a pool of their own: a few that block delay neither the loss of other
    leases nor their beats."""
    block = threading.Event()
    with memory_locks(ttl=0.6) as locks:
        stuck = [locks.acquire(f"s{number}", keep=False) for number in range(3)]
        for lease in stuck:
            lease.on_lost(lambda _: block.wait(20))
        other, kept = locks.acquire("other", keep=False), locks.acquire("kept")
        called = threading.Event()
        other.on_lost(lambda _: called.set())
        try:
            assert other.lost.wait(10)
            assert called.wait(10)
            renewed = kept.hold.renewed
            until(lambda: kept.hold.renewed > renewed + 600_000)
            assert kept.held
        finally:
            block.set()


def test_more_blocking_callbacks_than_threads_do_not_hide_a_loss() -> None:
    """When all callback threads are stuck, the event of a loss is set all the same."""
    block = threading.Event()
    with memory_locks(ttl=0.4) as locks:
        try:
            stuck = [locks.acquire(f"s{number}", keep=False) for number in range(10)]
            for lease in stuck:
                lease.on_lost(lambda _: block.wait(20))
            late = locks.acquire("late", keep=False, ttl=0.8)
            assert late.lost.wait(10)
            assert all(lease.lost.is_set() for lease in stuck)
        finally:
            block.set()


def test_callbacks_get_the_lease() -> None:
    """And run on a thread that is not the keeper's."""
    seen: list[tuple[Any, str]] = []
    with faulty_locks(ttl=0.5) as (locks, store):
        lease: Lease = locks.acquire("k")
        for what in (lease.on_danger, lease.on_lost):
            what(lambda got: seen.append((got, threading.current_thread().name)))
        store.plan(then="refuse")
        until(lambda: len(seen) == 2)
        assert all(got is lease for got, _ in seen)
        assert {name for _, name in seen} == {"holdfast-callback"}


def test_a_hung_beat_does_not_delay_the_loss() -> None:
    """With every beat thread stuck in the store, all losses come in time."""
    with faulty_locks(ttl=0.6) as (locks, store):
        leases = [locks.acquire(f"k{number}") for number in range(20)]
        store.plan(then="hang")
        deadlines = [lease.hold.deadline for lease in leases]
        for lease in leases:
            assert lease.lost.wait(10)
        assert [lease.hold.deadline for lease in leases] == deadlines
        store.plan()
        store.release_hung()
        time.sleep(0.05)
        assert not any(lease.held for lease in leases)


def test_beats_go_on_after_trouble() -> None:
    """A store that was away for a while costs nothing if it is back in time."""
    with faulty_locks(ttl=3) as (locks, store):
        lease = locks.acquire("k")
        faults: list[Fault] = ["lose reply", "refuse", "lose request"]
        store.plan(*faults, *faults)
        renewed = lease.hold.renewed
        until(lambda: lease.hold.renewed > renewed + 3_000_000)
        assert lease.held


def test_an_odd_error_in_a_beat_is_a_failed_beat(caplog: pytest.LogCaptureFixture) -> None:
    """An exception that no store should raise stops neither the beats nor the keeper."""

    class Odd(FaultyStore):
        odd = False

        def load(self, key: str, by: Any = NEVER) -> Any:
            if self.odd:
                raise ZeroDivisionError("odd")
            return super().load(key, by)

        def swap(self, *args: Any) -> Any:
            if self.odd:
                raise ZeroDivisionError("odd")
            return super().swap(*args)

    store = Odd(MemoryStore())
    with Locks(store, ttl=0.5) as locks:
        lease = locks.acquire("k")
        store.odd = True
        assert lease.lost.wait(10)
        store.odd = False
        with locks.acquire("other") as other:
            until(lambda: other.hold.renewed > other.hold.acquired)
    assert "The store is away: ZeroDivisionError: odd" in caplog.messages


def test_a_batch_that_fails_in_an_odd_way_is_taken_apart() -> None:
    """One of them may be to blame: the others are renewed, and it alone is not."""

    class Odd(MemoryStore):
        odd = False

        def swap_many(self, swaps: Sequence[Swap], by: Any = NEVER) -> Any:
            raise ZeroDivisionError

        def swap(self, key: str, *args: Any) -> Any:
            if self.odd and key == "b":
                raise ZeroDivisionError
            return super().swap(key, *args)

    store = Odd()
    with Locks(store, ttl=60) as locks:
        leases = [locks.acquire(key) for key in "abc"]
        store.odd = True
        outcomes = locks._client.leases.beat([lease.hold for lease in leases])
        assert [type(outcome) for outcome in outcomes] == [
            type(None),
            ZeroDivisionError,
            type(None),
        ]
        store.odd = False


def test_release_stops_the_beat_first() -> None:
    """No beat goes out for a lease that is being released."""
    with faulty_locks(ttl=0.3) as (locks, store):
        for _ in range(20):
            lease = locks.acquire("k")
            lease.release()
        time.sleep(0.3)
        before = len(store.calls)
        time.sleep(0.3)
        assert len(store.calls) == before


def test_releases_and_beats_race() -> None:
    """Leases that are released just as they beat end released, and their locks are free."""
    with memory_locks(ttl=0.3) as locks:
        for _ in range(30):
            leases = [locks.acquire(f"k{number}") for number in range(5)]
            time.sleep(0.06)
            assert all(lease.release() for lease in leases)
        assert [info.key for info in locks.list()] == []


def test_threads_that_fail_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that could not start its keeper once fails that acquire, frees the lock, and
    keeps the next lease."""
    real = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "holdfast-keeper":
            raise RuntimeError("can't start new thread")
        real(thread)

    with memory_locks(ttl=0.4) as locks:
        monkeypatch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            locks.acquire("k")
        monkeypatch.undo()
        assert locks.show("k").free
        with locks.acquire("k", timeout=0) as lease:
            until(lambda: lease.hold.renewed > lease.hold.acquired + 400_000)


def test_no_thread_for_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat for which there was no thread is tried again."""
    real, failed = threading.Thread.start, list[str]()

    def fail(thread: threading.Thread) -> None:
        if thread.name == "holdfast-beat" and len(failed) < 2:
            failed.append("x")
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with memory_locks(ttl=1) as locks, locks.acquire("k") as lease:
        until(lambda: lease.hold.renewed > lease.hold.acquired + 1_000_000)
        assert failed == ["x", "x"]


def test_renew_by_hand_learns_of_the_loss() -> None:
    """`renew` raises, and the loss is told to everyone at once."""
    with memory_locks(ttl=60) as locks:
        lease = locks.acquire("k")
        locks.evict("k")
        with pytest.raises(LeaseLost, match="it was evicted by"):
            lease.renew()
        assert lease.lost.is_set()
        assert len(locks._client.leases.keeper) == 0


def test_no_thread_for_a_callback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback for which there was no thread is logged; the keeper goes on."""
    real = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "holdfast-callback":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with memory_locks(ttl=0.5) as locks:
        told, kept = locks.acquire("told", keep=False), locks.acquire("kept", ttl=2)
        told.on_lost(lambda _: None)
        assert told.lost.wait(10)
        until(lambda: kept.hold.renewed > kept.hold.acquired + 2_000_000)
        late = locks.acquire("late", keep=False)
        assert late.lost.wait(10)
    assert any("callback" in line and "told" in line for line in caplog.messages)


@pytest.mark.parametrize("news", ["Lost", "InDanger", "OutOfDanger", "StoreTrouble"])
def test_a_listener_that_exits_ends_only_itself(
    news: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`sys.exit()` in a listener that the keeper calls is logged, and leases are still kept."""
    heard: list[str] = []

    def exit_on_news(event: Event) -> None:
        heard.append(type(event).__name__)
        if heard[-1] == news:
            sys.exit("enough")

    with faulty_locks(ttl=3, on_event=exit_on_news) as (locks, store):
        lost, kept = locks.acquire("lost", keep=False, ttl=0.2), locks.acquire("kept")
        store.plan(then="refuse")
        until(lambda: "InDanger" in heard)
        store.plan()
        until(lambda: {"Lost", "OutOfDanger"} <= set(heard))
        renewed = kept.hold.renewed
        until(lambda: kept.hold.renewed > renewed + 3_000_000)
        assert lost.lost.is_set()
        kept.release()  # else its loss would be told to us, not to the keeper
    assert any("enough" in str(record.exc_info) for record in caplog.records)


def test_an_acquire_that_ends_just_as_the_client_is_closed() -> None:
    """What comes too late for the keeper is given back: nobody would renew it or tell its loss."""
    store = MemoryStore()
    locks = Locks(store)
    real, keeper = locks._client.check_usable, locks._client.leases.keeper

    def close_right_after() -> None:
        real()
        if store.load("k").record.holders:  # the lock is ours, and the lease about to be
            keeper.close(list)

    locks._client.leases._check_usable = close_right_after
    with pytest.raises(ClientClosed):
        locks.acquire("k")
    assert not store.load("k").record.holders
    assert len(keeper) == 0


def test_after_a_sleep_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers stand still while a machine sleeps, and the clock does not: the keeper sees at once
    what has run out, and renews what has not."""
    real, asleep = clock.monotonic, 0
    monkeypatch.setattr(clock, "monotonic", lambda _=None: real() + asleep)
    with memory_locks() as locks:
        hour, day = locks.acquire("hour", ttl=3600), locks.acquire("day", ttl=24 * 3600)
        lost = hour.lost
        time.sleep(0.1)  # the keeper has gone to sleep
        asleep = 10 * 3600 * 1_000_000
        assert lost.wait(20)
        until(lambda: day.hold.renewed > day.hold.acquired)
        assert day.held
