"""`locks.once`: many want one result, and one of them makes it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    AcquireTimeout,
    Busy,
    LeaseLost,
    NothingPublished,
    StaleFence,
    Unavailable,
    UsageError,
    aio,
)
from holdfast.results import DirectoryResults, Found, Results
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ChaosStore
from tests.helpers import until


class Shelf:
    """Where results are published in these tests, with a count of what was begun."""

    def __init__(self) -> None:
        self.result: Any = None
        self.begun = 0

    def find(self) -> Any:
        return self.result

    def make(self, lease: Any) -> None:
        self.begun += 1
        self.result = f"made under {lease.key}"


class InMemory(Results):
    """A place for results in this process."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.published = 0

    def find(self, key: str) -> Found | None:
        return Found(self.kept[key]) if key in self.kept else None

    def publish(self, key: str, value: Any, lease: Any) -> None:
        lease.check()
        self.published += 1
        self.kept[key] = value


def never(lease: Any) -> None:
    """Work that must not begin."""
    raise AssertionError("this must not be called")


@pytest.fixture
def locks(tmp_path: Path) -> Any:
    """Locks on the embedded store."""
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        yield locks


def test_what_is_there_is_found_without_a_lock(locks: holdfast.Locks) -> None:
    """Nothing is locked for a result that exists."""
    with locks.acquire("k"):
        assert locks.once("k", find=lambda: 7, make=never, timeout=0) == 7


def test_the_first_makes_and_the_others_get_it(locks: holdfast.Locks) -> None:
    """Of many callers at once, one makes the result."""
    shelf = Shelf()
    together = threading.Barrier(8)

    def ask(_: int) -> Any:
        together.wait(60)
        return locks.once("k", find=shelf.find, make=shelf.make)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {"made under k"}
    assert shelf.begun == 1
    assert locks.show("k").free


def test_a_result_that_comes_between_the_look_and_the_grant(locks: holdfast.Locks) -> None:
    """Whoever gets the lock looks once more before it makes anything."""
    looks = iter([None, "made meanwhile"])
    assert locks.once("k", find=lambda: next(looks), make=never) == "made meanwhile"
    assert locks.show("k").free


def test_a_maker_that_raises_lets_the_next_one_try(locks: holdfast.Locks) -> None:
    """Its own caller gets the exception, with its traceback; the lock is free."""
    shelf = Shelf()

    def fail(lease: Any) -> None:
        raise ZeroDivisionError("no result today")

    with pytest.raises(ZeroDivisionError) as caught:
        locks.once("k", find=shelf.find, make=fail)
    assert caught.traceback[-1].name == "fail"
    assert locks.once("k", find=shelf.find, make=shelf.make) == "made under k"


def test_waiters_take_over_from_a_maker_that_raises(locks: holdfast.Locks) -> None:
    """Those who wait while a maker fails make the result themselves."""
    shelf = Shelf()
    making, fail_now = threading.Event(), threading.Event()

    def fail(lease: Any) -> None:
        making.set()
        assert fail_now.wait(60)
        raise ZeroDivisionError

    with ThreadPoolExecutor(4) as pool:
        failing = pool.submit(locks.once, "k", find=shelf.find, make=fail)
        assert making.wait(60)
        waiting = [pool.submit(locks.once, "k", find=shelf.find, make=shelf.make) for _ in range(3)]
        fail_now.set()
        with pytest.raises(ZeroDivisionError):
            failing.result(60)
        assert {each.result(60) for each in waiting} == {"made under k"}
    assert shelf.begun == 1


def test_the_time_of_a_waiter_is_bounded(locks: holdfast.Locks) -> None:
    """A waiter raises AcquireTimeout; one that does not wait at all raises Busy."""
    with locks.acquire("k"):
        with pytest.raises(AcquireTimeout):
            locks.once("k", find=lambda: None, make=never, timeout=0.05)
        with pytest.raises(Busy) as caught:
            locks.once("k", find=lambda: None, make=never, timeout=0)
    assert not isinstance(caught.value, AcquireTimeout)


def test_a_lock_that_is_kept_for_others_is_not_hammered(
    locks: holdfast.Locks, tmp_path: Path
) -> None:
    """A free lock with a queue in front of it refuses; the call pauses instead of spinning."""
    looks = 0

    def find() -> Any:
        nonlocal looks
        looks += 1
        return None

    url = f"sqlite:///{tmp_path}/locks.db"
    # A client of its own: callers of one client wait in the process, and not in the queue.
    with holdfast.connect(url) as others, ThreadPoolExecutor(1) as pool:
        with locks.acquire("k"):
            queued = pool.submit(others.acquire, "k", fair=True, timeout=60)
            until(lambda: locks.show("k").waiters)
            with pytest.raises(AcquireTimeout):
                locks.once("k", find=find, make=never, timeout=1)
        queued.result(60).release()
    assert looks < 50


def test_a_result_of_a_lost_lease_counts_only_if_it_is_found(locks: holdfast.Locks) -> None:
    """A maker that lost its lease gets what the look shows, or learns of its loss."""
    shelf = Shelf()

    def lose(lease: Any) -> None:
        locks.evict("k")
        with pytest.raises(LeaseLost):
            lease.renew()
        lease.check()

    with pytest.raises(LeaseLost):
        locks.once("k", find=shelf.find, make=lose)

    def lose_after_another_published(lease: Any) -> None:
        shelf.result = "by the next one"
        lose(lease)

    made = locks.once("k", find=shelf.find, make=lose_after_another_published)
    assert made == "by the next one"


def test_a_stale_maker_gets_what_the_others_get(locks: holdfast.Locks, tmp_path: Path) -> None:
    """It learns of its loss only by its fence, when its successor has published already."""
    results = DirectoryResults(tmp_path / "results")

    def overtaken(lease: Any) -> str:
        locks.evict("k")
        with locks.acquire("k") as next_one:
            results.publish("k", "by the next one", next_one)
        return "too late"

    assert locks.once("k", into=results, make=overtaken) == "by the next one"

    def stale(lease: Any) -> None:
        raise StaleFence

    with pytest.raises(StaleFence):
        locks.once("k", find=lambda: None, make=stale)


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_store_that_is_away_for_a_while(face: str) -> None:
    """The call goes on for `store_patience`, as `acquire` does; with a timeout of 0 it does not."""
    chaos = ChaosStore(MemoryStore())
    chaos.cut()
    shelf = InMemory()
    mending = threading.Timer(0.5, chaos.mend)

    def ask(**options: Any) -> Any:
        with holdfast.connect(chaos, store_patience=30) as locks:
            return locks.once("k", into=shelf, make=lambda lease: "made", **options)

    async def ask_async(**options: Any) -> Any:
        async with aio.connect(chaos, store_patience=30) as locks, asyncio.timeout(60):
            return await locks.once("k", into=shelf, make=lambda lease: "made", **options)

    def played(**options: Any) -> Any:
        return ask(**options) if face == "threads" else asyncio.run(ask_async(**options))

    with pytest.raises(Unavailable):
        played(timeout=0)
    mending.start()
    try:
        assert played() == "made"
    finally:
        mending.cancel()


def test_a_maker_that_publishes_nothing_is_told(locks: holdfast.Locks) -> None:
    """A result must be where `find` looks for it."""
    with pytest.raises(NothingPublished, match="publish"):
        locks.once("k", find=lambda: None, make=lambda lease: 42)
    assert locks.show("k").free


def test_into_a_place_for_results(locks: holdfast.Locks) -> None:
    """What `make` returns is published, also None."""
    shelf = InMemory()
    assert locks.once("k", into=shelf, make=lambda lease: None) is None
    assert locks.once("k", into=shelf, make=never) is None
    assert shelf.published == 1


def test_once_per_key(locks: holdfast.Locks) -> None:
    """As a decorator, the key is made of the arguments, and the lease is at hand."""
    shelf = InMemory()

    @locks.once_per("report:{month}", into=shelf, ttl=20)
    def report(month: str) -> str:
        return f"{holdfast.current_lease().key} at last"

    assert report("11") == report(month="11") == "report:11 at last"
    assert report("12") == "report:12 at last"
    assert shelf.published == 2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"find": lambda: None, "into": InMemory()},
        {"find": 7},
        {"find": lambda: None, "make": 7},
    ],
)
def test_bad_arguments(locks: holdfast.Locks, options: dict[str, Any]) -> None:
    """Wrong arguments are refused before anything is locked."""
    with pytest.raises(UsageError):
        locks.once("k", **{"make": lambda lease: None, **options})


async def _none() -> None:
    return None


def test_the_blocking_face_takes_no_async_functions(locks: holdfast.Locks) -> None:
    """They would never be awaited."""
    with pytest.raises(UsageError, match="aio"):
        locks.once("k", find=_none, make=lambda lease: None)
    with pytest.raises(UsageError, match="aio"):
        locks.lead("k", _leading)


async def _leading(lease: Any) -> None:
    return None


# --- asyncio ------------------------------------------------------------------------------------


def play(body: Callable[[aio.Locks], Any]) -> Any:
    """Run a body with locks of its own."""

    async def main() -> Any:
        async with aio.connect("memory:") as locks, asyncio.timeout(60):
            return await body(locks)

    return asyncio.run(main())


def test_tasks() -> None:
    """The same for tasks, with functions that are async."""

    async def body(locks: aio.Locks) -> None:
        shelf = Shelf()

        async def find() -> Any:
            await asyncio.sleep(0)
            return shelf.find()

        async def make(lease: aio.Lease) -> None:
            await asyncio.sleep(0.01)
            shelf.make(lease)

        asking = [locks.once("k", find=find, make=make) for _ in range(20)]
        assert set(await asyncio.gather(*asking)) == {"made under k"}
        assert shelf.begun == 1

    play(body)


def test_a_loss_cancels_an_async_maker() -> None:
    """It learns of the loss at once, and does not publish."""

    async def body(locks: aio.Locks) -> None:
        shelf = Shelf()

        async def make(lease: aio.Lease) -> None:
            await locks.evict("k")
            with pytest.raises(LeaseLost):
                await lease.renew()
            await asyncio.Event().wait()

        with pytest.raises(LeaseLost):
            await locks.once("k", find=shelf.find, make=make)

    play(body)


def test_the_time_of_an_async_maker_is_bounded() -> None:
    """In asyncio the time-out ends the making, too."""

    async def body(locks: aio.Locks) -> None:
        async def make(lease: aio.Lease) -> None:
            await asyncio.Event().wait()

        with pytest.raises(AcquireTimeout, match="not made in time"):
            await locks.once("k", find=lambda: None, make=make, timeout=0.05)
        assert (await locks.show("k")).free

    play(body)


def test_a_cancelled_caller_leaves_nothing() -> None:
    """The lock is free again after its maker was cancelled."""

    async def body(locks: aio.Locks) -> None:
        making = asyncio.Event()

        async def make(lease: aio.Lease) -> None:
            making.set()
            await asyncio.Event().wait()

        asking = asyncio.create_task(locks.once("k", find=lambda: None, make=make))
        await making.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await locks.show("k")).free

    play(body)


def test_once_per_key_of_asyncio() -> None:
    """The decorator takes async functions there."""

    async def body(locks: aio.Locks) -> None:
        shelf = InMemory()

        @locks.once_per("report:{month}", into=shelf)
        async def report(month: str) -> str:
            await asyncio.sleep(0)
            return f"{holdfast.current_lease().key} at last"

        assert await asyncio.gather(*(report("11") for _ in range(5))) == ["report:11 at last"] * 5
        assert shelf.published == 1

    play(body)
