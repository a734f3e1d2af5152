"""`locks.lead`: of many candidates one leads, and another one follows when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import HolderInfo, LeaseLost, Unavailable, UsageError, aio
from holdfast.stores.async_adapters import InlineStore
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ChaosStore
from tests.helpers import until


def never(lease: Any) -> None:
    """Work that must not begin."""
    raise AssertionError("this must not be called")


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[holdfast.Locks]:
    """Locks on the embedded store."""
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        yield locks


class Office:
    """A leader's work that notes what happens to it."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.running = 0
        self.most_running = 0
        self.in_office = threading.Event()

    def __call__(self, lease: holdfast.Lease) -> str:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        self.terms.append(lease.fence)
        self.in_office.set()
        lease.lost.wait(60)
        self.running -= 1
        return "done"


def test_it_leads_until_the_work_returns(locks: holdfast.Locks) -> None:
    """`serve` returns what the work returned, and the lock is free."""
    assert locks.lead("k", lambda lease: lease.key).serve() == "k"
    assert locks.show("k").free


def test_what_the_work_raises_comes_out(locks: holdfast.Locks) -> None:
    """The leader resigns, and its caller sees the exception."""

    def fail(lease: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        locks.lead("k", fail).serve()
    assert caught.traceback[-1].name == "fail"
    assert locks.show("k").free


def test_a_second_candidate_follows(locks: holdfast.Locks) -> None:
    """When the leader stops, the next one leads with a larger fence, and never both at once."""
    office = Office()
    with locks.lead("k", office) as first:
        assert office.in_office.wait(60)
        office.in_office.clear()
        with locks.lead("k", office) as second:
            assert first.leading
            assert not second.leading
            first.stop()
            assert office.in_office.wait(60)
            assert second.leading
    assert office.terms == sorted(set(office.terms))
    assert len(office.terms) == 2
    assert office.most_running == 1
    assert locks.show("k").free


def test_a_candidate_that_stops_leaves_no_place_in_the_queue(locks: holdfast.Locks) -> None:
    """Its place is given back at once, so that nobody waits for it."""
    with locks.acquire("k"):
        candidate = locks.lead("k", never)
        serving = threading.Thread(target=candidate.serve)
        serving.start()
        until(lambda: locks.show("k").waiters)
        candidate.stop()
        serving.join(60)
        assert not serving.is_alive()
        assert not locks.show("k").waiters
    assert locks.show("k").free


def test_a_candidate_that_was_stopped_before_it_served(locks: holdfast.Locks) -> None:
    """It never leads."""
    candidate = locks.lead("k", never)
    candidate.stop()
    assert candidate.serve() is None
    with pytest.raises(UsageError, match="served already"):
        candidate.serve()


def test_the_lease_is_kept_while_the_work_ends(locks: holdfast.Locks) -> None:
    """A leader that is told to stop still holds the lock until its work has ended."""
    held = []

    def work(lease: holdfast.Lease) -> None:
        lease.lost.wait(60)
        held.append(lease.held)

    with locks.lead("k", work) as candidate:
        until(lambda: candidate.leading)
    assert held == [True]
    assert locks.show("k").free


def test_a_lost_lease_ends_the_term_and_it_campaigns_again(locks: holdfast.Locks) -> None:
    """The work is told at once, and the next term has a new fence."""
    office = Office()
    with locks.lead("k", office, ttl=5) as candidate:
        assert office.in_office.wait(60)
        office.in_office.clear()
        lease = candidate._lease
        assert lease is not None
        locks.evict("k")
        with pytest.raises(LeaseLost):
            lease.renew()
        assert office.in_office.wait(60)
    assert len(office.terms) == 2
    assert office.terms[0] < office.terms[1]


def test_work_that_checks_its_lease_may_raise_the_loss(locks: holdfast.Locks) -> None:
    """`lease.check()` in the work is the way to end; it is no error of the candidate's."""
    terms = []

    def work(lease: holdfast.Lease) -> str:
        terms.append(lease.fence)
        if len(terms) == 2:
            return "second term"
        locks.evict("k")
        lease.renew()
        return "never"

    assert locks.lead("k", work).serve() == "second term"


def test_resigning_lets_the_next_one_lead(locks: holdfast.Locks) -> None:
    """A leader that resigns campaigns again, behind those who wait."""
    first, second = Office(), Office()
    with locks.lead("k", first, owner="first") as one:
        assert first.in_office.wait(60)
        with locks.lead("k", second, owner="second") as two:
            until(lambda: locks.show("k").waiters)
            one.resign()
            assert second.in_office.wait(60)
            first.in_office.clear()
            leader = locks.leader("k")
            assert leader is not None
            assert leader.owner == "second"
            two.stop()
            assert first.in_office.wait(60)
    two.resign()  # harmless for one that does not lead


def test_handing_over_with_a_ticket(locks: holdfast.Locks) -> None:
    """The next leader comes with the ticket, and those who wait are passed over."""
    first, heir, waiting = Office(), Office(), Office()
    with locks.lead("k", first) as one:
        assert first.in_office.wait(60)
        with locks.lead("k", waiting):
            until(lambda: locks.show("k").waiters)
            ticket = one.hand_over()
            with locks.lead("k", heir, ticket=ticket):
                assert heir.in_office.wait(60)
                assert not waiting.in_office.is_set()
            assert waiting.in_office.wait(60)


def test_resigning_to_somebody(locks: holdfast.Locks) -> None:
    """The one who is brought the ticket leads before those who wait; then the first campaigns."""
    first, heir, waiting = Office(), Office(), Office()
    tickets: queue.Queue[str] = queue.Queue()
    with locks.lead("k", first) as one:
        assert first.in_office.wait(60)
        with locks.lead("k", waiting):
            until(lambda: locks.show("k").waiters)
            first.in_office.clear()
            one.resign(to=tickets.put)
            with locks.lead("k", heir, ticket=tickets.get(timeout=60)):
                assert heir.in_office.wait(60)
                assert not waiting.in_office.is_set()
            assert waiting.in_office.wait(60)
        assert first.in_office.wait(60)


def test_a_ticket_that_nobody_can_bring(
    locks: holdfast.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the lock is free when the ticket has run out."""
    office = Office()

    def fail(ticket: str) -> None:
        raise ZeroDivisionError

    with locks.lead("k", office, ttl=1) as one:
        assert office.in_office.wait(60)
        office.in_office.clear()
        one.resign(to=fail)
        assert office.in_office.wait(60)
    assert "not brought to the next leader" in caplog.text


def test_a_ticket_that_comes_too_late(locks: holdfast.Locks) -> None:
    """The candidate campaigns like everybody else."""
    with locks.acquire("k") as lease:
        ticket = lease.hand_over()
    with locks.take(ticket):
        pass
    office = Office()
    with locks.lead("k", office, ticket=ticket):
        assert office.in_office.wait(60)


def test_only_a_leader_hands_over(locks: holdfast.Locks) -> None:
    """Who does not lead is told so."""
    with pytest.raises(UsageError, match="leader"):
        locks.lead("k", never).hand_over()


def test_who_leads_is_told_when_it_changes(locks: holdfast.Locks) -> None:
    """`on_change` gets the leader; `leader()` tells the same."""
    seen: list[str | None] = []
    changed = threading.Semaphore(0)

    def note(leader: HolderInfo | None) -> None:
        seen.append(leader.owner if leader else None)
        changed.release()

    assert locks.leader("k") is None
    with locks.acquire("k", owner="before") as lease:
        with locks.lead("k", Office(), owner="me", ttl=0.6, on_change=note):
            assert changed.acquire(timeout=60)
            lease.release()
            while "me" not in seen:
                assert changed.acquire(timeout=60)
    assert seen[0] == "before"
    assert seen[-1] == "me"


def test_a_callback_that_raises_harms_nothing(
    locks: holdfast.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the candidate leads all the same."""
    office = Office()

    def fail(leader: Any) -> None:
        raise ZeroDivisionError

    with locks.lead("k", office, on_change=fail):
        assert office.in_office.wait(60)
        while "on_change of k failed" not in caplog.text:
            time.sleep(0.01)


def test_a_leader_that_hangs_loses_its_lease(locks: holdfast.Locks) -> None:
    """Without a sign of life for the watchdog's time, the lease is lost although it is renewed."""
    reasons: list[str] = []

    def work(lease: holdfast.Lease) -> str:
        if reasons:
            return "recovered"
        assert lease.lost.wait(60)
        with pytest.raises(LeaseLost) as caught:
            lease.check()
        reasons.append(caught.value.why)
        return "told"

    assert locks.lead("k", work, ttl=1.5, watchdog=0.3).serve() == "recovered"
    assert "sign of life" in reasons[0]


def test_signs_of_life_keep_the_lease(locks: holdfast.Locks) -> None:
    """A leader that calls `alive()` in time is not disturbed."""

    def work(lease: holdfast.Lease) -> bool:
        for _ in range(30):
            lease.alive()
            lease.lost.wait(0.05)
        return lease.held

    assert locks.lead("k", work, ttl=1.5, watchdog=20).serve()


def test_outages_longer_than_any_patience() -> None:
    """A candidate goes on through trouble of the store that ends every other call."""
    chaos = ChaosStore(MemoryStore())
    with holdfast.connect(chaos, store_patience=0) as locks:
        office = Office()
        chaos.cut()
        with pytest.raises(Unavailable):
            locks.acquire("k")
        with locks.lead("k", office) as candidate:
            assert not office.in_office.wait(0.5)
            chaos.mend()
            assert office.in_office.wait(60)
            assert candidate.leading


PROGRAM = """
    import sys, holdfast
    locks = holdfast.connect(sys.argv[1])
    def work(lease):
        print("leading", flush=True)
        lease.lost.wait(60)
        print("held" if lease.held else "lost", flush=True)
    locks.lead("k", work).serve()
    print("free" if locks.show("k").free else "taken", flush=True)
"""


@pytest.mark.parametrize("leads", [True, False])
def test_sigterm_ends_it_cleanly(locks: holdfast.Locks, tmp_path: Path, leads: bool) -> None:
    """On SIGTERM a leader resigns, and a candidate leaves its place."""
    program = tmp_path / "candidate.py"
    program.write_text(textwrap.dedent(PROGRAM))
    url = f"sqlite:///{tmp_path}/locks.db"
    blocker = None if leads else locks.acquire("k")
    command = [sys.executable, str(program), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as candidate:
        assert candidate.stdout is not None
        if leads:
            assert candidate.stdout.readline() == "leading\n"
        else:
            until(lambda: locks.show("k").waiters)
        os.kill(candidate.pid, signal.SIGTERM)
        said = candidate.stdout.read().split()
        assert candidate.wait(60) == 0
    assert said == (["held", "free"] if leads else ["taken"])
    assert not locks.show("k").waiters
    if blocker is not None:
        blocker.release()


# --- asyncio ------------------------------------------------------------------------------------


def play(body: Callable[[aio.Locks], Any]) -> Any:
    """Run a body with locks of its own."""

    async def main() -> Any:
        async with aio.connect("memory:") as locks, asyncio.timeout(60):
            return await body(locks)

    return asyncio.run(main())


class Tasks:
    """The work of an asyncio leader, which waits until it is cancelled."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.ends: list[str] = []
        self.running = 0
        self.in_office = asyncio.Event()

    async def __call__(self, lease: aio.Lease) -> None:
        assert not self.running
        self.running += 1
        self.terms.append(lease.fence)
        self.in_office.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.running -= 1
            self.in_office.clear()
            self.ends.append("held" if lease.held else "lost")


def test_tasks_lead_one_after_the_other() -> None:
    """Stopping cancels the work, whose lease is held until it has ended."""

    async def body(locks: aio.Locks) -> None:
        office = Tasks()
        async with locks.lead("k", office) as first, locks.lead("k", office):
            await office.in_office.wait()
            first.stop()
            while len(office.terms) < 2:
                await asyncio.sleep(0.01)
        assert office.terms == sorted(set(office.terms))
        assert office.ends == ["held", "held"]
        assert (await locks.show("k")).free

    play(body)


def test_a_loss_cancels_the_task() -> None:
    """The work is cancelled at once, and the candidate campaigns again."""

    async def body(locks: aio.Locks) -> None:
        office = Tasks()
        async with locks.lead("k", office) as candidate:
            await office.in_office.wait()
            lease = candidate._lease
            assert lease is not None
            await locks.evict("k")
            with pytest.raises(LeaseLost):
                await lease.renew()
            while len(office.terms) < 2:
                await asyncio.sleep(0.01)
        assert office.ends == ["lost", "held"]

    play(body)


def test_a_cancelled_candidate_leaves_nothing() -> None:
    """Cancelling `serve` ends the work first, then frees the lock."""

    async def body(locks: aio.Locks) -> None:
        office = Tasks()
        serving = asyncio.create_task(locks.lead("k", office).serve())
        await office.in_office.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert office.ends == ["held"]
        assert (await locks.show("k")).free
        async with locks.acquire("k"):
            waiting = asyncio.create_task(locks.lead("k", office).serve())
            while not (await locks.show("k")).waiters:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not (await locks.show("k")).waiters

    play(body)


STORM = """
import itertools, random, signal, holdfast

def in_office(lease):
    while not lease.lost.wait(0):  # as often as possible inside the lock of the event
        pass

def resigns(lease):
    candidate.resign()

dice = random.Random(int(__import__("sys").argv[1]))
signal.signal(signal.SIGALRM, lambda *_: candidate.stop())
with holdfast.connect("memory://storm") as locks, holdfast.connect("memory://storm") as others:
    held = others.acquire("held")
    for turn, (key, work, again) in enumerate(itertools.islice(itertools.cycle([
        ("k", in_office, 0), ("k", in_office, 0.001), ("held", in_office, 0), ("k", resigns, 0),
    ]), 200)):
        candidate = locks.lead(key, work)
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.01), again)
        assert candidate.serve(stop_on=()) is None
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert locks.show("k").free
print("all ended")
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_stop_in_a_storm_of_signals(seed: str) -> None:
    """A handler may call `stop()` amid any line of the thread that serves: in office, while it
    campaigns, and while it resigns."""
    ran = subprocess.run(
        [sys.executable, "-c", STORM, seed], capture_output=True, text=True, timeout=100
    )
    assert ran.stdout == "all ended\n", ran.stderr


def test_a_candidate_of_asyncio_stops_while_it_waits() -> None:
    """`serve` returns None, and its place in the queue is gone."""

    async def body(locks: aio.Locks) -> None:
        async with locks.acquire("k"):
            candidate = locks.lead("k", Tasks())
            serving = asyncio.create_task(candidate.serve())
            while not (await locks.show("k")).waiters:
                await asyncio.sleep(0.01)
            candidate.stop()
            assert await serving is None
            assert not (await locks.show("k")).waiters

    play(body)


def test_a_candidate_of_asyncio_stops_while_the_store_is_away() -> None:
    """`serve` returns None also when it pauses between two campaigns."""

    async def main() -> None:
        chaos = ChaosStore(MemoryStore())
        chaos.cut()
        async with aio.connect(chaos, store_patience=0) as locks, asyncio.timeout(60):
            for moment in (0.02, 0.2, 0.5):  # in the first pause, in the second, in the third
                candidate = locks.lead("k", Tasks())
                serving = asyncio.create_task(candidate.serve())
                await asyncio.sleep(moment)
                candidate.stop()
                assert await serving is None

    asyncio.run(main())


def test_handing_over_in_asyncio() -> None:
    """The ticket brings the next leader in."""

    async def body(locks: aio.Locks) -> None:
        first, heir = Tasks(), Tasks()
        async with locks.lead("k", first) as one:
            await first.in_office.wait()
            ticket = await one.hand_over()
            async with locks.lead("k", heir, ticket=ticket):
                await heir.in_office.wait()
        assert first.terms < heir.terms

    play(body)


def test_what_an_async_leader_returns_and_raises() -> None:
    """The same as in threads."""

    async def body(locks: aio.Locks) -> None:
        async def work(lease: aio.Lease) -> str:
            return lease.key

        async def fail(lease: aio.Lease) -> None:
            raise ZeroDivisionError

        assert await locks.lead("k", work).serve() == "k"
        with pytest.raises(ZeroDivisionError):
            await locks.lead("k", fail).serve()
        assert (await locks.show("k")).free

    play(body)


# --- cancelled, stopped and asked twice ---------------------------------------------------------


def test_handing_over_what_ends_in_an_error() -> None:
    """Who waits for the ticket is told, by an error and not by a cancellation."""

    async def body(locks: aio.Locks) -> None:
        async def work(lease: aio.Lease) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise ZeroDivisionError

        candidate = locks.lead("k", work)
        serving = asyncio.create_task(candidate.serve(stop_on=()))
        while not candidate.leading:
            await asyncio.sleep(0.01)
        with pytest.raises(LeaseLost, match="not handed over"):
            await candidate.hand_over()
        with pytest.raises(ZeroDivisionError):
            await serving
        assert (await locks.show("k")).free

    play(body)


def test_a_candidate_that_is_cancelled_while_it_hands_over() -> None:
    """Whoever waits for a ticket learns that there is none, whatever ends the hand-over."""

    class Slow(InlineStore):
        async def swap(self, *arguments: Any) -> Any:
            await asyncio.sleep(0.2 if offering.is_set() else 0)
            return await super().swap(*arguments)

    class Memory(MemoryStore):
        def to_async(self) -> Any:
            return Slow(self)

    offering = asyncio.Event()

    async def main() -> None:
        async with aio.Locks(Memory()) as locks, asyncio.timeout(60):
            office = Tasks()
            candidate = locks.lead("k", office)
            serving = asyncio.create_task(candidate.serve(stop_on=()))
            await office.in_office.wait()
            offering.set()
            handing = asyncio.create_task(candidate.hand_over())
            while candidate.leading or not office.ends:
                await asyncio.sleep(0)
            serving.cancel()
            with pytest.raises(LeaseLost, match="not handed over"):
                await handing
            with pytest.raises(asyncio.CancelledError):
                await serving

    asyncio.run(main())


def test_two_hand_over_at_once() -> None:
    """Both get the ticket, and neither waits for ever."""

    async def body(locks: aio.Locks) -> None:
        office = Tasks()
        async with locks.lead("k", office) as candidate:
            await office.in_office.wait()
            one, other = await asyncio.gather(candidate.hand_over(), candidate.hand_over())
        assert one == other
        assert await (await locks.take(one)).release()

    play(body)


def test_who_stops_waiting_for_the_ticket_harms_nothing() -> None:
    """The candidate ends as it does without a hand-over, and the lock is free."""

    async def body(locks: aio.Locks) -> None:
        ending = asyncio.Event()

        async def work(lease: aio.Lease) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await ending.wait()

        candidate = locks.lead("k", work)
        serving = asyncio.create_task(candidate.serve(stop_on=()))
        while not candidate.leading:
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await candidate.hand_over()
        ending.set()
        assert await serving is None
        assert (await locks.show("k")).free

    play(body)


def test_a_task_that_was_cancelled_before_and_went_on_can_lead() -> None:
    """Only a cancellation that comes while it serves ends it."""

    async def body(locks: aio.Locks) -> None:
        async def work(lease: aio.Lease) -> str:
            return "done"

        async def stubborn() -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return await locks.lead("k", work).serve(stop_on=())

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        assert await task == "done"

    play(body)


def test_a_candidate_is_cancelled_at_every_moment() -> None:
    """The lock is free, also if the lease comes in the very moment of the cancellation."""

    async def body(locks: aio.Locks) -> None:
        for moments in range(25):
            serving = asyncio.create_task(locks.lead("k", Tasks()).serve(stop_on=()))
            for _ in range(moments):
                await asyncio.sleep(0)
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert (await locks.show("k")).free, moments

    play(body)


# --- resigning at odd moments -----------------------------------------------------------------


@contextlib.contextmanager
def serving(candidate: Any) -> Iterator[threading.Thread]:
    """A candidate that serves in a thread of its own, to be stopped in the end."""
    thread = threading.Thread(target=candidate.serve, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        candidate.stop()
        thread.join(20)
    assert not thread.is_alive()


def test_resign_in_a_signal_handler(locks: holdfast.Locks) -> None:
    """A handler may run in the middle of `lost.wait()`, which has the event's mutex then."""
    resigned = threading.Event()

    def run(lease: holdfast.Lease) -> None:
        if not resigned.is_set():
            with lease.lost._cond:  # type: ignore[attr-defined]
                candidate.resign()
            resigned.set()
        lease.lost.wait(60)

    candidate = locks.lead("office", run)
    with serving(candidate):
        assert resigned.wait(20)


def test_resign_before_the_work_begins(locks: holdfast.Locks) -> None:
    """Who has the lease already and is asked to resign does not lead on."""
    office = Office()
    candidate = locks.lead("office", office)
    begin, in_time = candidate._run_term, [True]

    def run_term(lease: holdfast.Lease) -> None:
        if in_time.pop():
            in_time.append(False)
            candidate.resign()
        begin(lease)

    candidate._run_term = run_term  # type: ignore[method-assign]
    with serving(candidate):
        until(lambda: len(office.terms) == 2)  # the first one was over at once


def test_resign_after_the_term(locks: holdfast.Locks, tmp_path: Path) -> None:
    """A resignation that comes as the term ends does not end the campaign that follows."""
    url = f"sqlite:///{tmp_path}/locks.db"
    office, late = Office(), threading.Event()
    candidate = locks.lead("office", office)
    too_late = threading.Thread(target=candidate.resign, daemon=True)
    mutex = candidate._lock

    class Slow:
        def __enter__(self) -> None:
            if threading.current_thread() is too_late:
                late.wait(20)
            mutex.acquire()

        def __exit__(self, *exc: object) -> None:
            mutex.release()

    candidate._lock = Slow()  # type: ignore[assignment]
    with serving(candidate) as thread, holdfast.connect(url) as other, ThreadPoolExecutor() as pool:
        assert office.in_office.wait(20)
        too_late.start()
        following = pool.submit(other.acquire, "office", fair=True)
        until(lambda: locks.show("office").waiters)
        candidate.resign()
        with following.result(20):
            until(lambda: candidate._end_part is not None and candidate._lease is None)
            late.set()
            too_late.join(20)
        until(lambda: len(office.terms) == 2)
        assert thread.is_alive()
