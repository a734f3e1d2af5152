"""One client of `aio` and several event loops, one after the other or side by side."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import UsageError, aio
from holdfast.testing.conformance import Target
from tests.conformance.targets import TARGETS
from tests.helpers import unique

# Whoever ends a loop with connections open on it leaves them to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KINDS = ("memory", "sqlite", "redis", "redis+cluster", "postgresql", "mysql", "file", "s3")
OF_ONE_LOOP = ("redis", "postgresql", "mysql")


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """A store of one kind."""
    make: Callable[[Path], Target] = TARGETS[request.param]
    yield make(tmp_path)
    gc.collect()


async def use(locks: aio.Locks, key: str) -> list[str]:
    """A lease, a wait for it, and a look."""
    async with asyncio.timeout(20):
        async with locks.acquire(key, ttl=10) as lease:
            waiting = asyncio.ensure_future(locks.acquire(key, ttl=10))
            await asyncio.sleep(0.05)
            await lease.renew()
        async with await waiting:
            return [info.key async for info in locks.list(key)]


@pytest.mark.parametrize("target", KINDS, indirect=True)
def test_one_loop_after_the_other(target: Target) -> None:
    """A client that outlives its loop works on the next one, with a lease of the first."""
    locks, key = aio.Locks(target.open()), unique()

    async def acquire() -> aio.Lease:
        return await locks.acquire(f"{key}:2", ttl=20)

    async def release(lease: aio.Lease) -> bool:
        assert lease.held
        return await lease.release()

    assert asyncio.run(use(locks, key)) == [key]
    lease = asyncio.run(acquire())
    assert set(asyncio.run(use(locks, key))) == {key, f"{key}:2"}
    assert asyncio.run(release(lease)) is True
    asyncio.run(locks.close())


@pytest.mark.parametrize("target", OF_ONE_LOOP, indirect=True)
def test_two_loops_at_once(target: Target) -> None:
    """Where connections belong to a loop, a second one is told to connect by itself."""
    said: list[Any] = []

    def elsewhere() -> None:
        try:
            asyncio.run(use(locks, key))
        except Exception as exc:
            said.append(exc)

    async def run() -> None:
        await use(locks, key)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert await use(locks, key) == [key]
        await locks.close()

    locks, key = aio.Locks(target.open()), unique()
    asyncio.run(run())
    assert [type(exc) for exc in said] == [UsageError]
    assert "aio.connect()" in str(said[0])


@pytest.mark.parametrize("target", ["sqlite", *OF_ONE_LOOP], indirect=True)
def test_a_client_is_closed_while_its_loop_stands_still(target: Target) -> None:
    """On another loop, and to the end: its store is told."""
    store, closed = target.open(), list[bool]()
    end = store.close
    store.close = lambda: closed.append(True) or end()  # type: ignore[method-assign, func-returns-value]
    locks, still = aio.Locks(store), asyncio.new_event_loop()
    still.run_until_complete(use(locks, unique()))
    asyncio.run(locks.close())
    asyncio.run(locks.close())
    assert closed == [True]
    still.close()


@pytest.mark.parametrize("target", OF_ONE_LOOP, indirect=True)
def test_a_client_is_not_closed_under_a_loop_that_runs(target: Target) -> None:
    """Whoever tries is told so, and the client is as it was."""

    async def run() -> None:
        await use(locks, key)
        with pytest.raises(UsageError):
            await asyncio.to_thread(asyncio.run, locks.close())
        assert await use(locks, key) == [key]
        await locks.close()

    locks, key = aio.Locks(target.open()), unique()
    asyncio.run(run())


@pytest.mark.parametrize("target", ["memory", "redis"], indirect=True)
def test_a_loss_is_told_on_the_next_loop(target: Target) -> None:
    """A lease that outlives its loop tells it where the client is used now."""
    locks, key = aio.Locks(target.open()), unique()

    async def acquire() -> aio.Lease:
        return await locks.acquire(key, ttl=1)

    async def lose(lease: aio.Lease) -> None:
        told = asyncio.Event()
        lease.on_lost(lambda _: told.set())
        await locks.evict(key)
        async with asyncio.timeout(20):
            await lease.lost.wait()
            await told.wait()
        await locks.close()

    asyncio.run(lose(asyncio.run(acquire())))


@pytest.mark.parametrize("target", OF_ONE_LOOP, indirect=True)
def test_loops_that_are_gone_leave_nothing_open(target: Target) -> None:
    """The connections of a loop are closed when the client goes on on another one."""
    locks, key = aio.Locks(target.open()), unique()
    asyncio.run(use(locks, key))
    before = open_sockets()
    for _ in range(6):
        asyncio.run(use(locks, key))
    assert open_sockets() < before + 6
    asyncio.run(locks.close())


def open_sockets() -> int:
    """How many this process has."""
    gc.collect()
    links = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return sum("socket:" in link for link in links)
