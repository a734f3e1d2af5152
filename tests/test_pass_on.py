"""Threads and tasks of one client that want one lock: they wait in line in the process, and a lock
that is released goes to the next of them without a request."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    AcquireTimeout,
    Busy,
    ClientClosed,
    Lease,
    LeaseLost,
    Locks,
    OutcomeUnknown,
    Unavailable,
    aio,
)
from holdfast.core.cohorts import TURN
from holdfast.core.records import SECOND, Holder
from holdfast.events import Acquired, Event, Released
from holdfast.stores.memory import MemoryStore
from tests.helpers import until
from tests.test_interrupts import Interrupt

TTL = 60


class CountingStore(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps = self.waits = 0
        self.trouble: Exception | None = None

    def swap(self, *args: Any) -> Any:
        """Counted."""
        self.swaps += 1
        self._fail()
        return super().swap(*args)

    def amend(self, *args: Any) -> Any:
        """Counted as well."""
        self.swaps += 1
        self._fail()
        return super().amend(*args)

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def wait(self, *args: Any) -> Any:
        """Counted."""
        self.waits += 1
        return super().wait(*args)

    def holders(self) -> tuple[Holder, ...]:
        """Who holds `k`, as the store has it."""
        return self.load("k").record.holders


@pytest.fixture
def store() -> CountingStore:
    """A store that counts."""
    return CountingStore()


@pytest.fixture
def locks(store: CountingStore) -> Iterator[Locks]:
    """A client on it."""
    with Locks(store, ttl=TTL) as client:
        yield client


class Thread(threading.Thread):
    """A thread whose result or exception can be asked for."""

    def __init__(self, run: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._run = run
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Run it."""
        try:
            self.result = self._run()
        except BaseException as exc:
            self.error = exc

    def wait(self) -> Any:
        """Wait for its end."""
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def in_line(locks: Locks, key: str = "k") -> int:
    """How many stand in line."""
    cohort = locks._client.cohorts._by_key.get(key)
    return len(getattr(cohort, "line", ()))


def waiting(locks: Locks, **options: Any) -> Thread:
    """A thread that wants the lock, when it stands in line."""
    before = in_line(locks)
    thread = Thread(lambda: locks.acquire("k", **options))
    until(lambda: in_line(locks) == before + 1)
    return thread


# --- threads ------------------------------------------------------------------------------------


def test_a_release_passes_the_lock_on_without_a_request(locks: Locks, store: CountingStore) -> None:
    """In the order in which they came, each with a fence of its own, and until it is used up by
    nobody: the last one frees the lock."""
    first = locks.acquire("k", owner="a")
    threads = [waiting(locks, owner=name, note={"n": name}) for name in "bcd"]
    asked = store.swaps, store.waits
    lease, fences, remaining = first, [first.fence], first._hold.deadline
    for thread, name in zip(threads, "bcd", strict=True):
        assert lease.release()
        assert not lease.held
        lease = thread.wait()
        assert (lease.owner, lease.note) == (name, {"n": name})
        assert lease._hold.deadline == remaining
        assert lease._hold.token == first._hold.token
        fences.append(lease.fence)
    assert (store.swaps, store.waits) == asked
    assert fences == sorted(set(fences))
    assert fences[-1] <= store.load("k").record.fence
    assert lease.release()
    assert locks.show("k").free
    with Locks(store) as others, others.acquire("k") as after:
        assert after.fence > fences[-1]


def test_a_renewal_tells_who_has_it(locks: Locks, store: CountingStore) -> None:
    """Until then `show` names the one before."""
    first = locks.acquire("k", owner="a")
    thread = waiting(locks, owner="b", note={"x": 1})
    first.release()
    lease = thread.wait()
    assert locks.show("k").holders[0].owner == "a"
    lease.renew()
    (holder,) = locks.show("k").holders
    assert (holder.owner, holder.note, holder.fence) == ("b", {"x": 1}, lease.fence)
    fence = lease.fence
    lease.renew()
    assert lease.fence == fence


def test_a_joined_lease_has_the_fence_of_the_one_that_is_shared(
    locks: Locks, store: CountingStore
) -> None:
    """Also if the store does not know of it yet; and a shared lock is not passed on."""
    first = locks.acquire("k")
    thread = waiting(locks)
    first.release()
    lease = thread.wait()
    with Locks(store) as others:
        joined = others.join(lease.share())
        assert joined.fence == lease.fence
        joined.renew()
        assert joined.fence == lease.fence
        last = waiting(locks)
        lease.release()
        assert last.wait().fence > lease.fence + 1


def test_evicting_by_the_fence_of_a_lease_that_was_passed_on(
    locks: Locks, store: CountingStore
) -> None:
    """Ends the grant, before a renewal and after one."""
    for renewed in (False, True):
        first = locks.acquire("k")
        thread = waiting(locks)
        first.release()
        lease: Lease = thread.wait()
        if renewed:
            lease.renew()
        with Locks(store) as others:
            assert len(others.evict("k", fence=lease.fence)) == 1
        with pytest.raises(LeaseLost):
            lease.renew()


def test_an_eviction_by_the_same_client_lets_the_next_one_go_to_the_store(locks: Locks) -> None:
    """At once, and not only when the holder has learnt of it."""
    lease = locks.acquire("k")
    thread = waiting(locks)
    assert len(locks.evict("k")) == 1
    heir: Lease = thread.wait()
    assert heir.fence > lease.fence
    assert locks.try_acquire("k") is None
    assert not lease.release()
    assert heir.held
    heir.release()


def test_a_lost_lease_lets_the_next_one_go_to_the_store(locks: Locks, store: CountingStore) -> None:
    """Nothing that was lost is passed on."""
    lease = locks.acquire("k")
    thread = waiting(locks)
    with Locks(store) as others:
        others.evict("k")
    with pytest.raises(LeaseLost):
        lease.renew()
    assert thread.wait().fence > lease.fence


def test_a_lease_that_nobody_has_any_more(locks: Locks, store: CountingStore) -> None:
    """Its ttl frees it, and then the next one gets the lock."""
    lease = locks.acquire("k", ttl=1)
    thread = waiting(locks, ttl=1)
    del lease
    gc.collect()
    assert thread.wait().held


def test_a_lease_that_is_handed_over_is_not_passed_on(locks: Locks, store: CountingStore) -> None:
    """The party with the ticket is next."""
    lease = locks.acquire("k")
    thread = waiting(locks)
    taken = locks.take(lease.hand_over())
    assert taken.held
    assert thread.is_alive()
    taken.release()
    assert thread.wait().fence > taken.fence


def test_others_get_their_turn(locks: Locks, store: CountingStore) -> None:
    """When the time is over the hold goes back, and the crowd claims behind who is in the queue."""
    lease = locks.acquire("k")
    thread = waiting(locks)
    with Locks(store, owner="other", ttl=TTL) as others:
        stranger = Thread(lambda: others.acquire("k", fair=True))
        until(lambda: store.load("k").record.queue)
        lease._hold.turn_began -= TURN
        lease.release()
        theirs: Lease = stranger.wait()
        assert theirs.owner == "other"
        assert thread.is_alive()
        theirs.release()
        assert thread.wait().fence > theirs.fence


@pytest.mark.parametrize(
    "options", [{"mode": "shared"}, {"keep": False}, {"fair": False}, {"ttl": TTL + 1}]
)
def test_who_wants_it_in_another_way_goes_to_the_store(
    locks: Locks, store: CountingStore, options: dict[str, Any]
) -> None:
    """As one more party there."""
    with locks.acquire("k"), pytest.raises(AcquireTimeout, match="held by"):
        locks.acquire("k", timeout=0.05, **options)
    assert store.waits > 0


def test_it_can_be_switched_off(store: CountingStore) -> None:
    """Then everybody waits at the store."""
    with Locks(store, pass_on=False) as locks, locks.acquire("k"):
        with pytest.raises(AcquireTimeout):
            locks.acquire("k", timeout=0.05)
        assert store.waits > 0


def test_a_timeout_in_line(locks: Locks, store: CountingStore) -> None:
    """Says who holds the lock, and the next one in line is not held up by it. No request is sent.
    A thread that waits for itself is such a case."""
    lease = locks.acquire("k", owner="ann")
    asked = store.swaps, store.waits
    last = waiting(locks, timeout=0.2)
    after = waiting(locks)
    with pytest.raises(AcquireTimeout, match="held by ann") as late:
        last.wait()
    assert late.value.holders[0].owner == "ann"
    with pytest.raises(Busy, match="held by this very thread, ann"):
        locks.acquire("k", timeout=0)
    assert locks.try_acquire("k") is None
    assert (store.swaps, store.waits) == asked
    lease.release()
    assert after.wait().held


def test_a_client_that_is_closed_wakes_those_in_line(store: CountingStore) -> None:
    """They are told that it is closed."""
    locks = Locks(store, ttl=TTL)
    lease = locks.acquire("k")
    thread = waiting(locks)
    locks.close()
    with pytest.raises(ClientClosed):
        thread.wait()
    assert not lease.held
    assert store.holders() == ()


def test_store_trouble_is_everybodys(store: CountingStore) -> None:
    """Whoever is in line does not wait for the store's return once more."""
    with Locks(store, ttl=TTL) as others, others.acquire("k"):
        with Locks(store, ttl=TTL, store_patience=0.4, request_timeout=1) as locks:
            leader = Thread(lambda: locks.acquire("k", fair=True))
            until(lambda: store.load("k").record.queue)
            threads = [waiting(locks) for _ in range(3)]
            store.trouble = Unavailable("away")
            started = time.monotonic()
            for thread in (leader, *threads):
                with pytest.raises((Unavailable, OutcomeUnknown)):
                    thread.wait()
            assert time.monotonic() - started < 50
            store.trouble = None


def test_who_waits_is_told_to_the_holder(locks: Locks) -> None:
    """At its next renewal, as of those who wait at the store."""
    lease = locks.acquire("k")
    wanted = threading.Event()
    lease.on_wanted(lambda lease: wanted.set())
    waiting(locks, owner="bob")
    lease.renew()
    assert [waiter.owner for waiter in lease.wanted] == ["bob"]
    lease.release()


def test_events_of_a_lease_that_is_passed_on(store: CountingStore) -> None:
    """As of any other, with its own fence and attempt."""
    told: list[Event] = []
    with Locks(store, ttl=TTL, on_event=told.append) as locks:
        first = locks.acquire("k")
        thread = waiting(locks)
        first.release()
        second = thread.wait()
        second.release()
    acquired = [event for event in told if isinstance(event, Acquired)]
    released = [event for event in told if isinstance(event, Released)]
    assert [event.fence for event in acquired] == [first.fence, second.fence]
    assert [event.fence for event in released] == [first.fence, second.fence]
    assert len({event.attempt for event in acquired}) == 2
    assert acquired[1].waited >= 0


def test_max_hold_counts_for_each_lease(locks: Locks) -> None:
    """From when it got the lock."""
    first = locks.acquire("k", max_hold=100)
    thread = waiting(locks, max_hold=7)
    first.release()
    lease = thread.wait()
    assert lease._hold.care.max_hold == 7 * SECOND
    assert lease._hold.acquired > first._hold.acquired


def test_many_threads_lose_nothing(locks: Locks, store: CountingStore) -> None:
    """One at a time, fences that grow, everybody served, and hardly a request."""
    inside, fences, served = [0], list[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(20):
            with locks.acquire("k") as lease:
                inside[0] += 1
                assert inside[0] == 1
                fences.append(lease.fence)
                time.sleep(0.001)
                inside[0] -= 1
        served.append(number)

    threads = [Thread(lambda n=number: work(n)) for number in range(20)]  # type: ignore[misc]
    for thread in threads:
        thread.wait()
    assert len(served) == 20
    assert fences == sorted(set(fences))
    assert store.swaps < len(fences)
    assert locks._client.cohorts._by_key == {}


# --- interrupts, at every line -------------------------------------------------------------------


@pytest.mark.parametrize("act", ["pass on", "pass on in vain", "wait", "be given"])
def test_at_every_line(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever line of ours is interrupted: whoever waits in line gets the lock soon, nobody else
    has it at the same time, and the interrupt comes through."""
    monkeypatch.setattr("holdfast.core.cohorts.LOOK_AGAIN", SECOND // 20)
    store = CountingStore()
    swallowed = list[str]()
    lines = 0
    with Locks(store, ttl=TTL) as locks:
        for n in range(2000):
            mine = locks.acquire("k")
            if act == "pass on in vain":
                mine._hold.turn_began -= TURN
            heir = waiting(locks)
            if act == "be given":  # the other one has it, and passes it on to this thread
                mine.release()
                other = heir.wait()
                threading.Timer(0.01, other.release).start()
            got: Any = None
            with Interrupt(n) as interrupt:
                try:
                    if act in ("wait", "be given"):
                        got = locks.acquire("k", timeout=0.05 if act == "wait" else 20)
                    else:
                        mine.release()
                except KeyboardInterrupt:
                    pass
                except AcquireTimeout:
                    assert not interrupt.raised
                else:
                    if interrupt.raised:
                        swallowed.append(interrupt.raised)
            _let_go(got)
            if mine.held and act != "be given":  # an interrupted caller may try again
                mine.release()
            if act == "be given":
                heir = Thread(lambda: locks.acquire("k"))
            lease = _got(heir, store, interrupt.raised)
            assert lease.held, interrupt.raised
            lease.release()
            if not interrupt.raised:
                break
            lines += 1
        else:
            raise AssertionError("it never ended")
    assert lines > 10
    assert swallowed == []


def _let_go(lease: Any) -> None:
    if lease is not None:
        lease.release()


def _got(heir: Thread, store: CountingStore, where: str) -> Lease:
    """What the one in line has got. If an interrupt came before the lock was freed, the ttl would
    free it: an eviction does it sooner."""
    heir.join(0.5)
    if heir.is_alive():
        with Locks(store) as operator:
            operator.evict("k")
    heir.join(20)
    assert not heir.is_alive(), where
    assert heir.error is None, where
    lease: Lease = heir.result
    return lease


# --- tasks ----------------------------------------------------------------------------------------


def test_tasks_pass_it_on_in_order() -> None:
    """Without a request, and without a thread."""

    async def run() -> None:
        store = CountingStore()
        async with aio.Locks(store, ttl=TTL) as locks:
            order, fences = list[int](), list[int]()

            async def work(number: int) -> None:
                async with locks.acquire("k") as lease:
                    order.append(number)
                    fences.append(lease.fence)
                    await asyncio.sleep(0)

            await asyncio.gather(*[work(number) for number in range(50)])
            assert order == list(range(50))
            assert fences == sorted(set(fences))
            assert store.swaps <= 4
            assert store.holders() == ()

    asyncio.run(run())


@pytest.mark.parametrize("given", [False, True])
def test_a_cancelled_task_gives_on_what_it_was_given(given: bool) -> None:
    """Whether it stood in line, or was just given the lock and has not run yet."""

    async def run() -> None:
        store = CountingStore()
        async with aio.Locks(store, ttl=TTL) as locks:
            lease = await locks.acquire("k")
            cancelled = asyncio.ensure_future(locks.acquire("k"))
            after = asyncio.ensure_future(locks.acquire("k"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if given:
                await lease.release()
            cancelled.cancel()
            if not given:
                await asyncio.wait({cancelled})
                await lease.release()
            async with asyncio.timeout(20):
                heir = await after
            assert cancelled.cancelled()
            assert heir.held
            (holder,) = store.holders()
            assert holder.token == heir._hold.token
            await heir.release()

    asyncio.run(run())


def test_two_loops_in_two_threads_pass_it_on() -> None:
    """A client of a store that belongs to no loop may be used on both."""
    store = CountingStore()
    locks = aio.Locks(store, ttl=TTL)
    counted, inside = list[int](), [0]

    async def work() -> None:
        for _ in range(20):
            async with locks.acquire("k") as lease:
                inside[0] += 1
                assert inside[0] == 1
                await asyncio.sleep(0)
                inside[0] -= 1
                counted.append(lease.fence)

    async def crowd() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*[work() for _ in range(5)])

    threads = [Thread(lambda: asyncio.run(crowd())) for _ in range(2)]
    for thread in threads:
        thread.wait()
    assert counted == sorted(set(counted))
    assert len(counted) == 200


def test_a_tight_switch_interval() -> None:
    """Threads that are switched at every few instructions find no gap."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        store = CountingStore()
        with Locks(store, ttl=TTL) as locks:
            inside = [0]

            def work() -> None:
                for _ in range(30):
                    with locks.acquire("k", timeout=60):
                        inside[0] += 1
                        assert inside[0] == 1
                        inside[0] -= 1

            for thread in [Thread(work) for _ in range(8)]:
                thread.wait()
            assert store.holders() == ()
    finally:
        sys.setswitchinterval(before)
