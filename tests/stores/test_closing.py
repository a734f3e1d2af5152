"""Clients that are closed while calls of theirs are under way, on the stores of one machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Locks, aio
from holdfast.stores.registry import open_store
from holdfast.stores.sqlite.store import SQLiteStore
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import until

KINDS = ("sqlite", "file", "postgresql", "mysql", "redis")
TURNS = 20


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store."""
    found = f"{request.param}://{tmp_path}/locks"
    if request.param == "postgresql":
        found = shared(PostgreSQL).url()
    elif request.param == "mysql":
        found = shared(MariaDB).url()
    elif request.param == "redis":
        found = shared(RedisServer).url
    with closing(holdfast.connect(found)) as locks:
        locks.setup()
    return found


def taken(url: str, prefix: str) -> list[str]:
    """Returns which locks are taken."""
    with closing(holdfast.connect(url)) as locks:
        return [lock.key for lock in locks.list(prefix) if lock.holders]


LOST = (holdfast.ClientClosed, holdfast.LeaseLost)  # a lease whose client was closed is lost


Begun = Callable[[], object]  # what the work calls: from then on the client may be closed


def close_amid_a_thread(url: str, work: Callable[[Locks, Begun], object]) -> None:
    """Close one client after another while a thread does this work again and again."""

    def until_closed(locks: Locks, begun: threading.Event) -> None:
        with suppress(*LOST):
            while True:
                work(locks, begun.set)

    for turn in range(TURNS):
        locks, begun = holdfast.connect(url, ttl=60), threading.Event()
        thread = threading.Thread(target=until_closed, args=(locks, begun))
        thread.start()
        assert begun.wait(20)
        time.sleep(turn * 0.0001)
        locks.close()
        thread.join(20)


async def close_amid_a_task(
    url: str, work: Callable[[aio.Locks, Begun], Awaitable[object]]
) -> None:
    """The same on an event loop."""

    async def until_closed(locks: aio.Locks, begun: asyncio.Event) -> None:
        with suppress(*LOST):
            while True:
                await work(locks, begun.set)

    for turn in range(TURNS):
        locks, begun = aio.connect(url, ttl=60), asyncio.Event()
        task = asyncio.create_task(until_closed(locks, begun))
        await begun.wait()
        await asyncio.sleep(turn * 0.0001)
        await locks.close()
        await task


def test_close_while_another_thread_locks(url: str) -> None:
    """What it gets, or was about to give back, is free when the client is closed."""
    prefix = f"closing/{uuid4().hex}/"

    def lock(locks: Locks, begun: Begun) -> None:
        with locks.acquire(f"{prefix}{uuid4().hex}"):
            begun()

    close_amid_a_thread(url, lock)
    assert taken(url, prefix) == []


def test_close_while_another_task_locks(url: str) -> None:
    """The same on an event loop."""
    prefix = f"closing/{uuid4().hex}/"

    async def lock(locks: aio.Locks, begun: Begun) -> None:
        async with locks.acquire(f"{prefix}{uuid4().hex}"):
            begun()

    asyncio.run(close_amid_a_task(url, lock))
    assert taken(url, prefix) == []


def test_close_while_another_thread_hands_over(url: str) -> None:
    """What it hands over, somebody can take; all else is free when the client is closed."""
    prefix, tickets = f"closing/{uuid4().hex}/", list[str]()

    def hand_over(locks: Locks, begun: Begun) -> None:
        tickets.append(locks.acquire(f"{prefix}{uuid4().hex}").hand_over())
        begun()

    close_amid_a_thread(url, hand_over)
    take_and_release(url, tickets)
    assert taken(url, prefix) == []


def test_close_while_another_task_hands_over(url: str) -> None:
    """The same on an event loop."""
    prefix, tickets = f"closing/{uuid4().hex}/", list[str]()

    async def hand_over(locks: aio.Locks, begun: Begun) -> None:
        lease = await locks.acquire(f"{prefix}{uuid4().hex}")
        tickets.append(await lease.hand_over())
        begun()

    asyncio.run(close_amid_a_task(url, hand_over))
    take_and_release(url, tickets)
    assert taken(url, prefix) == []


def take_and_release(url: str, tickets: Iterable[str]) -> None:
    """Use these tickets."""
    with closing(holdfast.connect(url)) as locks:
        for ticket in tickets:
            locks.take(ticket).release()


def test_close_waits_for_a_claim_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is granted after close() was called, and is free when that returns."""
    url, swap = f"sqlite://{tmp_path}/locks", SQLiteStore.swap
    locks, swapping, closed = holdfast.connect(url, ttl=60), threading.Event(), threading.Event()
    locks.acquire("another").release()

    def swap_late(store: SQLiteStore, *args: object) -> object:
        swapping.set()
        until(lambda: locks._client.closed)
        return swap(store, *args)  # type: ignore[arg-type]

    def acquire() -> None:
        with pytest.raises(holdfast.ClientClosed):
            locks.acquire("k")
        closed.set()

    monkeypatch.setattr(SQLiteStore, "swap", swap_late)
    thread = threading.Thread(target=acquire)
    thread.start()
    assert swapping.wait(20)
    locks.close()
    assert closed.wait(20)
    thread.join()
    with closing(open_store(url)) as store:
        assert store.load("k").record.holders == ()


def test_close_waits_for_the_clean_up_behind_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the call could not clean up behind itself, and left it to the background."""
    url, swap = f"sqlite://{tmp_path}/locks", SQLiteStore.swap
    locks, swapping = holdfast.connect(url, ttl=60), threading.Event()
    failed: list[object] = []
    locks.acquire("another").release()

    def swap_late(store: SQLiteStore, *args: object) -> object:
        if locks._client.closed and len(failed) < 2:
            failed.append(args)
            raise holdfast.Unavailable("not now")
        swapping.set()
        until(lambda: locks._client.closed)
        return swap(store, *args)  # type: ignore[arg-type]

    def acquire() -> None:
        with pytest.raises(holdfast.ClientClosed):
            locks.acquire("k")

    monkeypatch.setattr(SQLiteStore, "swap", swap_late)
    thread = threading.Thread(target=acquire)
    thread.start()
    assert swapping.wait(20)
    locks.close()
    thread.join(20)
    assert len(failed) == 2
    with closing(open_store(url)) as store:
        assert store.load("k").record.holders == ()


@pytest.mark.parametrize("turns", range(1, 6))
def test_close_is_cancelled(url: str, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has begun goes on: the lease is given back, and then the connections are closed."""
    prefix, closed = f"closing/{uuid4().hex}/", []

    async def run() -> None:
        locks = aio.connect(url, ttl=60)
        lease = await locks.acquire(f"{prefix}k")
        kind = type(locks._client.driver.store_here())
        close = kind.close

        async def told(store: Any) -> None:
            await close(store)
            closed.append(store)

        monkeypatch.setattr(kind, "close", told)
        closing = asyncio.create_task(locks.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        async with asyncio.timeout(20):
            while not closed:
                await asyncio.sleep(0.001)
        assert not lease.held

    asyncio.run(run())
    assert taken(url, prefix) == []


def test_close_waits_only_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim whose store does not answer does not keep close() for longer than its bound."""
    locks, swapping, goes_on = (
        holdfast.connect(f"file://{tmp_path}/locks"), threading.Event(), threading.Event()
    )  # fmt: skip
    kind = type(locks._client.store)

    def hang(*args: object) -> None:
        swapping.set()
        goes_on.wait(20)
        raise holdfast.Unavailable("too late")

    monkeypatch.setattr(kind, "swap", hang)
    monkeypatch.setattr(kind, "amend", hang)
    thread = threading.Thread(target=lambda: _fails(locks))
    thread.start()
    assert swapping.wait(20)
    began = time.monotonic()
    locks.close()
    took = time.monotonic() - began
    goes_on.set()
    thread.join(20)
    assert took < 2


def _fails(locks: Locks) -> None:
    with pytest.raises(holdfast.HoldfastError):
        locks.acquire("k", timeout=1)
