"""After a fork the child holds nothing, and the parent is none the worse for it."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import ClientForked, LeaseLost
from tests.helpers import is_open, memory_locks, unique, until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


class Child:
    """A forked process that runs a function, step by step with its parent."""

    def __init__(self, work: Callable[[Child], Any]) -> None:
        self._from_child, to_parent = os.pipe()
        from_parent, self._to_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._from_child, self._to_child = from_parent, to_parent
            self._run(work)
        os.close(to_parent)
        os.close(from_parent)

    def _run(self, work: Callable[[Child], Any]) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # whatever happens, the child ends
        signal.alarm(20)
        faulthandler.dump_traceback_later(15)  # and says where it was
        try:
            answer = {"answer": work(self)}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        os.write(self._to_child, json.dumps(answer).encode() + b"\n")
        os._exit(0)

    def tell(self) -> None:
        """Let the other side go on."""
        os.write(self._to_child, b"\n")

    def listen(self) -> None:
        """Wait for the other side."""
        assert os.read(self._from_child, 1) == b"\n"

    def answer(self) -> Any:
        """What the function returned."""
        with os.fdopen(self._from_child) as pipe:
            text = pipe.read()
        os.close(self._to_child)
        assert os.waitpid(self.pid, 0)[1] == 0, "the child hung"
        said = json.loads(text)
        assert "error" not in said, said["error"]
        return said["answer"]


def raised(call: Callable[[], Any]) -> str:
    """The class and the message of what a call raises."""
    try:
        call()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return "nothing"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    if request.param == "memory":
        return f"memory://{unique()}"
    return f"sqlite://{tmp_path}/locks.db"


def test_child_holds_nothing(url: str) -> None:
    """A lease of the parent is not held in the child, and says whose it is."""
    with holdfast.connect(url) as locks, locks.acquire("k", ttl=60) as lease:
        event = lease.lost

        def work(_: Child) -> Any:
            return (
                lease.held, lease.remaining(), event.is_set(), repr(lease),
                raised(lease.check), raised(lease.share),
            )  # fmt: skip

        held, remaining, lost, shown, check, share = Child(work).answer()
        assert (held, remaining, lost) == (False, 0.0, False)
        assert "k" in shown
        for said in (check, share):
            assert said.startswith(f"{LeaseLost.__name__}: ")
            assert "parent process" in said
        assert lease.held


def test_child_is_told_to_connect_again(url: str) -> None:
    """Every use of the parent's client in the child says what to do."""
    with holdfast.connect(url) as locks:
        lease = locks.acquire("k", ttl=60)
        ticket = lease.share()

        def work(_: Child) -> Any:
            return [
                raised(call)
                for call in (
                    lambda: locks.acquire("other"),
                    lambda: locks.try_acquire("other"),
                    lambda: locks.acquire_all(["other"]),
                    lambda: locks.join(ticket),
                    lambda: locks.take(ticket),
                    lambda: locks.show("k"),
                    lambda: list(locks.list()),
                    lambda: locks.evict("k"),
                    lambda: locks.purge(),
                    lambda: locks.setup(),
                    lease.renew,
                    lease.hand_over,
                )
            ]

        for said in Child(work).answer():
            assert said.startswith(ClientForked.__name__), said
            assert "connect() again" in said
        assert lease.release() is True


def test_child_frees_nothing(url: str) -> None:
    """Releasing, leaving a block, closing and exiting in the child leave the parent's lock."""
    with holdfast.connect(url) as locks, locks.acquire("k", ttl=60) as lease:

        def work(_: Child) -> Any:
            released = lease.release()
            lease.__exit__(None, None, None)
            locks.close()
            return released

        assert Child(work).answer() is False
        assert lease.held
        lease.renew()
        assert locks.try_acquire("k") is None


def test_parent_goes_on_being_renewed(tmp_path: Path) -> None:
    """The keeper of the parent keeps a lease past many forks and its ttl."""
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks:
        with locks.acquire("k", ttl=0.6) as lease:
            renewed = lease.hold.renewed
            for _ in range(5):
                assert Child(lambda _: 1).answer() == 1
            until(lambda: lease.hold.renewed > renewed + 700_000)
            assert lease.held


def test_child_connects_anew(tmp_path: Path) -> None:
    """A client made in the child works, and sees its parent's lease as somebody else's."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url, owner="parent") as locks, locks.acquire("k", ttl=60):

        def work(_: Child) -> Any:
            with holdfast.connect(url, owner="child") as own, own.acquire("mine", timeout=5):
                return own.try_acquire("k") is None, own.show("k").holders[0].owner

        assert Child(work).answer() == [True, "parent"]


OTHER_PROCESS = """
import sys, holdfast
locks = holdfast.connect(sys.argv[1], owner="third")
print([locks.try_acquire(key) is None for key in sys.argv[2:]])
"""


def test_child_and_others_see_each_other(tmp_path: Path) -> None:
    """A child's lock excludes a third process, also after the parent has let go of the file.

    SQLite's own books on who has the file open are copied by a fork: with a connection open
    across it, the last to close would take the log away from under the child.
    """
    url = f"sqlite://{tmp_path}/locks.db"
    parent = holdfast.connect(url, owner="parent")
    with parent.acquire("warm"):
        pass
    with pytest.raises(holdfast.AcquireTimeout):  # the watch has a connection too
        with parent.acquire("warm"):
            parent.acquire("warm", timeout=0.05)

    def work(child: Child) -> Any:
        with holdfast.connect(url, owner="child") as own:
            before = own.acquire("before", ttl=60)
            child.tell()
            child.listen()
            after = own.acquire("after", ttl=60)
            child.tell()
            child.listen()
            return before.held, after.held

    child = Child(work)
    child.listen()
    parent.close()
    child.tell()
    child.listen()
    third = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, url, "before", "after"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert third.stdout.strip() == "[True, True]"
    child.tell()
    assert child.answer() == [True, True]


def test_fork_amid_traffic(tmp_path: Path) -> None:
    """Forking while other threads use the store leaves both sides working."""
    url = f"sqlite://{tmp_path}/locks.db"
    stop = threading.Event()
    trouble: list[BaseException] = []

    def traffic(locks: holdfast.Locks, key: str) -> None:
        try:
            while not stop.is_set():
                with locks.acquire(key, timeout=20):
                    pass
        except BaseException as exc:
            trouble.append(exc)

    def work(_: Child) -> Any:
        with holdfast.connect(url) as own, own.acquire("t0", timeout=20) as lease:
            return lease.held

    with holdfast.connect(url) as locks:
        threads = [threading.Thread(target=traffic, args=(locks, f"t{i % 2}")) for i in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                assert Child(work).answer() is True
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert trouble == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux tells what is open")
def test_fork_while_a_store_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that connects has the file open before it can be asked to pause."""
    url = f"sqlite://{tmp_path}/locks.db"
    holdfast.connect(url).close()
    opened, go_on = threading.Event(), threading.Event()

    def open_slowly(connection: Any) -> None:
        opened.set()
        go_on.wait(10)

    monkeypatch.setattr("holdfast.stores.sqlite.store.create_tables", open_slowly)
    thread = threading.Thread(target=lambda: holdfast.connect(url).close())
    thread.start()
    assert opened.wait(10)
    threading.Timer(0.3, go_on.set).start()
    told = Child(lambda _: is_open(tmp_path / "locks.db")).answer()
    thread.join()
    assert told is False


def test_fork_amid_a_call(tmp_path: Path) -> None:
    """As from a signal handler. What a child has open of a file cannot be told from what its
    parent has: rather than see a world of its own, it is told so."""
    url = f"sqlite://{tmp_path}/locks.db?busy_s=0.05"
    with holdfast.connect(url) as locks, locks.acquire("k") as lease:
        store = locks._client.store
        with store._lock:  # type: ignore[attr-defined]
            child = Child(lambda _: raised(lambda: holdfast.connect(url)))
        said = child.answer()
        assert said.startswith("Misconfigured: ")
        assert "fork" in said
        assert lease.held
        with holdfast.connect(url) as other:  # the parent is none the worse for it
            assert other.try_acquire("k") is None
        assert Child(lambda _: raised(lambda: holdfast.connect(url).close())).answer() == "nothing"


def test_memory_store_of_a_child_is_empty() -> None:
    """The copy of a memory store in a child has no ghosts of the parent's leases."""
    url = f"memory://{unique()}"
    with holdfast.connect(url) as locks, locks.acquire("k", ttl=60):

        def work(_: Child) -> Any:
            with holdfast.connect(url) as own, own.acquire("k", timeout=0) as lease:
                return lease.held

        assert Child(work).answer() is True
        assert locks.try_acquire("k") is None


def _pool_work(url: str) -> bool:
    with holdfast.connect(url) as locks, locks.acquire("k", timeout=20) as lease:
        return lease.held


def test_multiprocessing_fork(tmp_path: Path) -> None:
    """Workers of a forking pool each connect for themselves."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as locks, locks.acquire("other", ttl=60) as lease:
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(_pool_work, [url] * 6) == [True] * 6
        assert lease.held
        lease.renew()


def test_lost_lease_dropped_in_the_child() -> None:
    """Throwing the lease away in the child tells nobody anything."""
    with memory_locks() as locks:
        leases = [locks.acquire("k", ttl=60)]

        def work(_: Child) -> Any:
            leases.clear()
            return True

        assert Child(work).answer() is True
        assert leases[0].held


def test_fork_while_another_thread_asks_for_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child can ask its own lease for events and callbacks, whatever another thread of its
    parent was at."""
    asking, go_on = threading.Event(), threading.Event()
    real = holdfast.Lease._new_event

    def slowly(lease: holdfast.Lease) -> threading.Event:
        asking.set()
        go_on.wait(20)
        return real(lease)

    def work(_: Child) -> Any:
        with memory_locks() as locks, locks.acquire("k") as lease:
            return lease.lost.is_set()

    with memory_locks() as locks, locks.acquire("k") as lease:
        monkeypatch.setattr(holdfast.Lease, "_new_event", slowly)
        asker = threading.Thread(target=lambda: lease.lost)
        asker.start()
        assert asking.wait(20)
        monkeypatch.undo()
        child = Child(work)
        go_on.set()
        asker.join()
        assert child.answer() is False
