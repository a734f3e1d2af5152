"""A client survives a fork on every store and through both faces."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import holdfast
from holdfast import Locks, aio
from tests.conformance.targets import TARGETS
from tests.engines.redis import RedisServer, client
from tests.engines.shared import shared
from tests.forking import Child, raised
from tests.helpers import unique
from tests.stores.sql.servers import ENGINES, Server

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

# Buckets are in tests/stores/blob/test_processes.py: obstore's threads do not survive a fork.
STORES = ["file", "dynamodb", "memory", "mysql", "postgresql", "sqlite", "redis", "redis+cluster"]


def work_under_locks(locks: Locks, lease: holdfast.Lease, seen: bool) -> Callable[[Child], Any]:
    """What a child does with its parent's client and lease. Returns what went wrong."""

    def work(_: Child) -> list[str]:
        wrong = []
        if (locks.try_acquire(lease.key) is None) is not seen:
            wrong.append("sees the parent's lock" if not seen else "does not see the parent's lock")
        with locks.acquire(f"{lease.key}/child", timeout=20) as mine:
            if mine.owner == lease.owner or not mine.held:
                wrong.append("has no lease of its own")
        if lease.held or lease.release():
            wrong.append("holds the parent's lease")
        if "belongs to the parent process" not in raised(lease.check):
            wrong.append("is not told whose the lease is")
        locks.close()
        return wrong

    return work


@pytest.mark.parametrize("store", STORES)
def test_blocking(store: str, tmp_path: Path) -> None:
    """Children work with the client of their parent, which goes on."""
    key = unique()
    with Locks(TARGETS[store](tmp_path).open()) as locks, locks.acquire(key, ttl=60) as lease:
        for _ in range(2):
            assert Child(work_under_locks(locks, lease, store != "memory")).answer() == []
            lease.renew()
            assert locks.show(f"{key}/child").free
            assert locks.try_acquire(key) is None


@pytest.mark.parametrize("store", STORES)
def test_asyncio(store: str, tmp_path: Path) -> None:
    """The same with asyncio: the child has an event loop of its own."""

    async def in_child(locks: aio.Locks, lease: aio.Lease) -> list[Any]:
        seen = await locks.try_acquire(lease.key) is None
        async with locks.acquire(f"{lease.key}/child", timeout=20) as mine:
            held = mine.held
        told = raised(lease.check)
        released = await lease.release()
        await locks.close()
        return [seen, held, "belongs to the parent process" in told, released]

    async def in_parent() -> None:
        key = unique()
        async with aio.Locks(TARGETS[store](tmp_path).open()) as locks:
            async with locks.acquire(key, ttl=60) as lease:
                for _ in range(2):
                    child = Child(lambda _: asyncio.run(in_child(locks, lease)))
                    said = await asyncio.to_thread(child.answer)
                    assert said == [store != "memory", True, True, False]
                    await lease.renew()
                    assert (await locks.show(f"{key}/child")).free

    asyncio.run(in_parent())


@pytest.mark.parametrize("store", STORES)
def test_storm(store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Forks while other threads are in the middle of calls, waits and renewals."""
    # Nothing is to be logged: a thread may be writing when the process forks, and then the file
    # of the log stays locked in the child.
    caplog.set_level(logging.CRITICAL, "holdfast")
    key, stop = unique(), threading.Event()
    trouble: list[BaseException] = []
    with Locks(TARGETS[store](tmp_path).open()) as locks:

        def traffic(number: int) -> None:
            try:
                while not stop.is_set():
                    with locks.acquire(f"{key}/{number % 2}", timeout=60):
                        pass
            except BaseException as exc:
                trouble.append(exc)

        def work(_: Child) -> bool:
            with locks.acquire(f"{key}/0", timeout=20) as lease:
                return lease.held

        threads = [threading.Thread(target=traffic, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            with locks.acquire(f"{key}/held", ttl=60) as lease:
                for _ in range(3):
                    children = [Child(work) for _ in range(2)]
                    assert [child.answer() for child in children] == [True, True]
                lease.renew()
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
    assert trouble == []


# --- what belongs to the application -----------------------------------------------------------


def test_engine_of_an_application() -> None:
    """Its pool is replaced in the child, and the parent's connections go on."""
    server = Server("postgresql", shared(ENGINES["postgresql"]))
    engine = create_engine(server.url().replace("postgresql://", "postgresql+psycopg://"))
    key = unique()

    def work(child: Child) -> Any:
        said = work_under_locks(locks, lease, True)(child)
        with engine.connect() as connection:
            return said, connection.execute(text("SELECT pg_backend_pid()")).scalar()

    with holdfast.connect(engine) as locks, locks.acquire(key, ttl=60) as lease:
        with engine.connect() as connection:
            mine = connection.execute(text("SELECT pg_backend_pid()")).scalar()
            said, theirs = Child(work).answer()
            assert connection.execute(text("SELECT pg_backend_pid()")).scalar() == mine != theirs
        assert said == []
        lease.renew()
    engine.dispose()
    server.close()


def test_async_engine_of_an_application() -> None:
    """The same for asyncio."""
    server = Server("postgresql", shared(ENGINES["postgresql"]))
    key = unique()

    async def in_child(locks: aio.Locks) -> bool:
        seen = await locks.try_acquire(key) is None
        async with locks.acquire(f"{key}/child", timeout=20) as mine:
            return seen and mine.held

    async def in_parent() -> None:
        address = server.url().replace("postgresql://", "postgresql+psycopg://")
        engine = create_async_engine(address)
        async with aio.connect(engine) as locks, locks.acquire(key, ttl=60) as lease:
            child = Child(lambda _: asyncio.run(in_child(locks)))
            assert await asyncio.to_thread(child.answer) is True
            await lease.renew()
        await engine.dispose()

    asyncio.run(in_parent())
    server.close()


def test_redis_client_of_an_application() -> None:
    """Only its settings are used, so there is nothing to share."""
    with client(shared(RedisServer).port) as redis:
        with holdfast.connect(redis) as locks, locks.acquire(unique(), ttl=60) as lease:
            assert Child(work_under_locks(locks, lease, True)).answer() == []
            lease.renew()
