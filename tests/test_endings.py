"""Clients that are closed, and programs that end, while they hold something."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.api.locks import Locks
from holdfast.core.records import NEVER
from holdfast.errors import LeaseLost
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from tests.helpers import until


def end(program: str, path: Path) -> str:
    """Run a program to its end. `locks` are those of the file, and `aio` is imported. Returns
    what it wrote to stderr."""
    head = f"import holdfast, os, sys\nfrom holdfast import aio\nurl = 'sqlite:{path}'\n"
    ran = subprocess.run(
        [sys.executable, "-c", head + program], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode in (0, 3), ran.stderr
    return ran.stderr


def held(path: Path) -> list[str]:
    """The keys that are held in the file."""
    with holdfast.connect(f"sqlite:{path}") as locks:
        return [info.key for info in locks.list()]


ENDINGS = {
    "the end": "",
    "an exit": "sys.exit(3)",
    "a closed client": "locks.close()",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_that_ends_gives_back(ending: str, tmp_path: Path) -> None:
    """A lease that nobody released is free at once for the next program, and nothing is told."""
    program = f"locks = holdfast.connect(url); lease = locks.acquire('k', ttl=600)\n{ending}"
    assert end(program, tmp_path / "locks.db") == ""
    assert held(tmp_path / "locks.db") == []


def test_an_asyncio_program_that_ends_gives_back(tmp_path: Path) -> None:
    """Also when its event loop is closed by then."""
    program = (
        "import asyncio\nlocks = aio.connect(url)\nasync def get():\n"
        "    return await locks.acquire('k', ttl=600)\nlease = asyncio.run(get())"
    )
    assert end(program, tmp_path / "locks.db") == ""
    assert held(tmp_path / "locks.db") == []


KEPT = {
    "shared": "lease = locks.acquire('k', ttl=600); ticket = lease.share()",
    "handed over": "ticket = locks.acquire('k', ttl=600).hand_over()",
    "joined": (
        "other = holdfast.connect(url, owner='other')\n"
        "theirs = other.acquire('k', ttl=600)\n"
        "lease = locks.join(theirs.share(release=True))"
    ),
    "meant to run out": "lease = locks.acquire('k', ttl=600, keep=False)",
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_what_others_may_rely_on_is_left(kept: str, tmp_path: Path) -> None:
    """A lease whose ticket was given away is another party's too, and one without renewal was
    meant to run out by itself."""
    assert end(f"locks = holdfast.connect(url)\n{kept}", tmp_path / "locks.db") == ""
    assert held(tmp_path / "locks.db") == ["k"]


def test_a_forked_child_gives_nothing_back(tmp_path: Path) -> None:
    """The child of a fork that ends normally leaves its parent's leases alone."""
    program = (
        "locks = holdfast.connect(url); lease = locks.acquire('k', ttl=600)\n"
        # From 3.12 on, Python warns of any fork in a process with threads.
        "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"
        "child = os.fork()\n"
        "if not child: sys.exit()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert lease.held and not locks.show('k').free\n"
        "lease.check()"
    )
    assert end(program, tmp_path / "locks.db") == ""


def test_close_tells_the_lease_before_it_gives_back(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever still works under it learns that it is over, and the log does not call it lost."""
    caplog.set_level(logging.INFO, "holdfast")
    store = MemoryStore()
    locks = Locks(store)
    lease, left = locks.acquire("k", ttl=600), locks.acquire("n", ttl=600, keep=False)
    lost = lease.lost
    locks.close()
    assert lost.is_set()
    with pytest.raises(LeaseLost, match="its client was closed"):
        lease.check()
    assert not left.held
    assert [info.key for info in Locks(store).list()] == ["n"]
    words = [record.getMessage().split(" after")[0] for record in caplog.records]
    assert sorted(words[-2:]) == ["Gave back lock k", "Left lock n"]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_close_does_not_wait_for_a_store_that_hangs() -> None:
    """A store that does not answer costs a bounded time, and the ttl frees the lock."""
    store = FaultyStore(MemoryStore())
    locks = Locks(store)
    lease = locks.acquire("k", ttl=600)
    store.plan(then="hang")
    begun = time.monotonic()
    locks.close()
    assert time.monotonic() - begun < 30
    assert not lease.held


def test_close_gives_back_also_after_a_pause() -> None:
    """The store fails the first two tries, and there is time for a third."""
    store = FaultyStore(MemoryStore())
    locks = Locks(store)
    lease = locks.acquire("k", ttl=600)
    store.plan("refuse", "refuse")
    locks.close()
    assert not lease.held
    assert list(Locks(store).list()) == []


def test_close_does_not_break_off_a_clean_up() -> None:
    """A call timed out while the store was in trouble. Its place in the queue is taken out by a
    thread of the client, which pauses between two tries when the client is closed."""
    store = FaultyStore(MemoryStore())
    locks, other = Locks(store), Locks(store)
    held = other.acquire("k", ttl=600)
    thread = threading.Thread(target=lambda: fails(locks, "k"))
    thread.start()
    until(lambda: len(other.show("k").waiters) == 1)
    store.plan(then="refuse")
    thread.join()
    assert locks._client.leases.cleaning.busy()
    store.plan("refuse")
    locks.close()
    assert other.show("k").waiters == ()
    held.release()


def fails(locks: Locks, key: str) -> None:
    """Wait for a lock in vain."""
    with pytest.raises(holdfast.HoldfastError):
        locks.acquire(key, timeout=0.5)


MANY_HANG = """
import threading, time
from holdfast.api.locks import Locks
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
def hangs(event): threading.Event().wait()
clients = []
for number in range(40):
    store = FaultyStore(MemoryStore())
    locks = Locks(store, sinks=[hangs])
    clients.append((locks, locks.acquire("k", ttl=600)))
    store.plan(then="hang")
print(time.monotonic(), file=sys.stderr, flush=True)
"""


def test_many_clients_take_no_longer_to_end_than_one(tmp_path: Path) -> None:
    """The stores of forty clients hang, and so do their sinks: the program waits once for all."""
    said = end(MANY_HANG, tmp_path / "locks.db")
    assert time.monotonic() - float(said.split()[0]) < 40, said


PLACE_HANGS = """
import asyncio, threading
from holdfast.results.base import Results
class Hangs(Results):
    def find(self, key): threading.Event().wait()
    def publish(self, key, value, lease): threading.Event().wait()
async def main():
    async with aio.connect(url) as locks:
        try:
            async with asyncio.timeout(0.1):
                await locks.once("k", make=lambda lease: 1, into=Hangs())
        except TimeoutError:
            print("out of time", file=sys.stderr)
asyncio.run(main())
"""


def test_an_event_loop_does_not_wait_for_a_place_that_hangs(tmp_path: Path) -> None:
    """A result's place may stand still like any server: who gave up on it, and the end of the
    program, are not held up."""
    assert end(PLACE_HANGS, tmp_path / "locks.db") == "out of time\n"


def test_close_on_an_event_loop_gives_back() -> None:
    """The asyncio face gives back too, and other tasks run meanwhile."""
    store = FaultyStore(MemoryStore())

    async def run() -> int:
        locks = aio.Locks(store)
        lease = await locks.acquire("k", ttl=600)
        store.plan("hang")
        closing = asyncio.create_task(locks.close())
        turns = 0
        while not closing.done():
            await asyncio.sleep(0.01)
            turns += 1
            if turns == 5:
                store.release_hung()
        await closing
        assert not lease.held
        return turns

    assert asyncio.run(run()) >= 5
    until(lambda: not store.load("k").record.holders)


class Liar(MemoryStore):
    """Writes the second key, and says that it did not."""

    lies = 1

    def swap(self, key: str, version: Any, record: Any, wake: Any = (), by: Any = NEVER) -> Any:
        outcome = super().swap(key, version, record, wake, by)
        if key == "b" and record.holders and self.lies:
            self.lies -= 1
            raise holdfast.Unavailable("Not done, it says.")
        return outcome


def test_acquire_all_keeps_nothing_that_its_caller_does_not_know() -> None:
    """Though a store says 'not done' of what it did, all leases come out, or none is renewed."""
    with Locks(Liar()) as locks:
        with locks.acquire_all(["a", "b"], ttl=60) as leases:
            assert leases.held
        assert list(locks.list()) == []
        assert not locks._client.leases._adopting
    liar = Liar()
    with Locks(liar) as locks:
        with pytest.raises(holdfast.Unavailable):
            locks.acquire_all(["a", "b"], ttl=60, timeout=0)
        assert len(locks._client.leases.keeper) == 0
        assert not locks._client.leases._adopting
        assert not liar.load("a").record.holders


def test_the_module_starts_nothing() -> None:
    """Importing Holdfast and ending costs no thread."""
    program = (
        "import holdfast, threading; holdfast.connect('memory://'); print(threading.active_count())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, env=dict(os.environ))
    assert ran.stdout.split() == [b"1"]
