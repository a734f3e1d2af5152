"""A lease that nobody refers to any more: its renewal stops, the log says so, the ttl frees it."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import UsageError, aio
from holdfast.api.locks import Locks
from holdfast.runtime import keeper_thread
from holdfast.stores.memory import MemoryStore
from tests.helpers import memory_locks, unique, until

# The ttl of leases that must be kept: a full collection stops all threads, for seconds at load.
KEPT_S = 6.0


def test_a_dropped_lease_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    """It is no longer renewed, an error says why, and the next one gets in after the ttl."""
    store = MemoryStore()
    with Locks(store, ttl=0.5, owner="careless") as locks:
        locks.acquire("k")
        assert locks.try_acquire("k") is None
        until(lambda: _errors(caplog))
        with locks.acquire("k", timeout=10, owner="next"):
            pass
    (error,) = _errors(caplog)
    assert error.startswith("Lost lock k: ")


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of this test: the keeper of one before it may still have something to say."""
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    return [error for error in errors if "owner: careless" in error]


def test_callbacks_do_not_keep_it() -> None:
    """Neither its event nor its callbacks keep a lease alive."""
    with memory_locks() as locks:
        lease = locks.acquire("k")
        event = lease.lost
        lease.on_lost(print)
        gone = weakref.ref(lease)
        del lease
        gc.collect()
        assert gone() is None
        assert not event.is_set()


class _Job:
    """Something that has a lease and wants to know what becomes of it."""

    def __init__(self, lease: holdfast.Lease | aio.Lease) -> None:
        self.lease = lease
        self.told: list[object] = []
        lease.on_lost(self.tell)
        lease.on_danger(self.tell)
        lease.on_wanted(self.tell)

    def tell(self, lease: holdfast.Lease | aio.Lease) -> None:
        self.told.append(lease)


def test_callbacks_of_its_owner_do_not_keep_it() -> None:
    """Who has a lease, and has its own methods called back, can be forgotten with it; as long as
    it is not, it is told."""
    with memory_locks() as locks:
        kept, forgotten = _Job(locks.acquire("kept")), _Job(locks.acquire("forgotten"))
        gone = weakref.ref(forgotten.lease)
        del forgotten
        gc.collect()
        assert gone() is None
        locks.evict("kept")
        with pytest.raises(holdfast.LeaseLost):
            kept.lease.renew()
        until(lambda: kept.told == [kept.lease])


def test_callbacks_of_an_async_owner_do_not_keep_it() -> None:
    """The same for asyncio."""

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as locks:
            kept, forgotten = _Job(await locks.acquire("k")), _Job(await locks.acquire("f"))
            gone = weakref.ref(forgotten.lease)
            del forgotten
            gc.collect()
            assert gone() is None
            await locks.evict("k")
            with pytest.raises(holdfast.LeaseLost):
                await kept.lease.renew()  # type: ignore[misc]
            async with asyncio.timeout(10):
                while kept.told != [kept.lease]:
                    await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_block_keeps_it() -> None:
    """In a `with` block without a name the lease is kept all the same."""
    with memory_locks(ttl=KEPT_S) as locks:
        with locks.acquire("k"):
            (hold,) = locks._client.leases.keeper.holds()
            gc.collect()
            until(lambda: hold.renewed > hold.acquired + 500_000)
            assert hold.state == "held"


def test_a_group_keeps_its_leases() -> None:
    """As long as a group is there its leases are, and no longer."""
    with memory_locks() as locks:
        leases = locks.acquire_all(["a", "b"])
        gc.collect()
        assert leases.held
        gone = [weakref.ref(lease) for lease in leases]
        del leases
        gc.collect()
        assert [lease() for lease in gone] == [None, None]


def test_a_released_lease_says_nothing() -> None:
    """Dropping what was released is no news."""
    told: list[str] = []
    with memory_locks(ttl=0.3, on_event=lambda event: told.append(type(event).__name__)) as locks:
        locks.acquire("k").release()
        kept = locks.acquire("other")
        until(lambda: kept.hold.renewed > kept.hold.acquired)  # the keeper came by
        told = [name for name in told if name != "Renewed"]
        assert told == ["Started", "Acquired", "Released", "Started", "Acquired"]


@pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, pickle.dumps])
def test_there_is_no_second_one(double: Callable[[object], object]) -> None:
    """A copy that is dropped would end the renewal of the original."""
    with memory_locks() as locks, locks.acquire("k") as lease:
        with pytest.raises(UsageError, match=r"share\(\)"):
            double(lease)
        if double is not copy.copy:
            with pytest.raises(UsageError, match=r"connect\(\)"):
                double(locks)
        assert lease.held


LEFT_OPEN = """
import sys, holdfast

def job():
    with holdfast.connect(sys.argv[1], ttl=60) as locks, locks.acquire("k"):
        yield

running = job()
next(running)
"""


def test_a_block_that_is_open_when_the_program_ends(tmp_path: Path) -> None:
    """Python leaves it after the end of all other threads, whatever they had: the lock is
    released, and the program does end."""
    url = f"sqlite://{tmp_path}/locks.db"
    subprocess.run([sys.executable, "-c", LEFT_OPEN, url], check=True, timeout=30)
    with holdfast.connect(url) as locks:
        assert locks.show("k").free


def test_many_dropped_at_once() -> None:
    """A thousand forgotten leases do not disturb one that is not."""
    with memory_locks(ttl=3) as locks:
        kept = locks.acquire("kept")
        for number in range(1000):
            locks.acquire(f"k{number}")
        until(lambda: len(locks._client.leases.keeper) == 1)
        assert kept.held


def test_a_dropped_client(caplog: pytest.LogCaptureFixture) -> None:
    """A lease keeps its client: it goes on being renewed when only the lease is kept."""
    lease = Locks(MemoryStore(), ttl=KEPT_S).acquire("k")
    gc.collect()
    until(lambda: lease.hold.renewed > lease.hold.acquired + 500_000)
    assert lease.held
    lease.release()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_client_without_leases_is_dropped(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was never closed leaves no thread behind, and so no connection, once nobody refers
    to it and it has nothing to keep. Until then it works on, however long it was idle."""
    monkeypatch.setattr(keeper_thread, "IDLE_S", 0.05)
    before = set(threading.enumerate())
    url = f"memory://{unique()}" if kind == "memory" else f"sqlite://{tmp_path}/locks.db"
    locks = holdfast.connect(url, ttl=0.3)
    for _ in range(2):
        _keep_one_for_a_while(locks)
    gone = weakref.ref(locks._client)
    del locks
    gc.collect()
    assert gone() is None
    until(lambda: set(threading.enumerate()) <= before)


def _keep_one_for_a_while(locks: Locks) -> None:
    """Until it was renewed; and then until the keeper has nothing to do."""
    with locks.acquire("k") as lease:
        until(lambda: lease.hold.renewed > lease.hold.acquired)
    until(lambda: locks._client.leases.keeper._thread is None)


def test_async_leases_are_dropped_too(caplog: pytest.LogCaptureFixture) -> None:
    """The same for asyncio."""

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}", ttl=0.4, owner="drowsy") as locks:
            await locks.acquire("k")
            async with asyncio.timeout(10):
                await (await locks.acquire("k")).release()

    asyncio.run(run())
    lines = [line for line in caplog.messages if "owner: drowsy" in line]
    assert any("nobody kept a reference" in line for line in lines)
