"""After a fork the child holds nothing, and the parent is none the worse for it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import LeaseLost
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.null import NullStore
from holdfast.stores.sqlite import SQLiteStore
from tests.forking import Child, raised
from tests.helpers import is_open, memory_locks, unique, until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


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


def test_client_works_in_the_child(url: str) -> None:
    """Every call of the parent's client works in the child, as that of a client of its own."""
    with holdfast.connect(url) as locks:
        lease = locks.acquire("k", ttl=60)

        def work(_: Child) -> Any:
            with locks.acquire("a") as first, locks.acquire_all(["b", "c"]):
                joined = locks.join(first.share())
                taken = locks.take(joined_or(locks.acquire("d")).hand_over())
                held = [holder.key for holder in locks.holders()]
                joined.release()
                mine = taken.owner.endswith(f":{os.getpid()}")
                locks.setup()
            return [
                sorted(held), mine, [one.key for one in locks.evict("d")], locks.show("a").free,
                [info.key for info in locks.list()], locks.purge(),
            ]  # fmt: skip

        def joined_or(other: holdfast.Lease) -> holdfast.Lease:
            return other

        held, mine, evicted, free, left, purged = Child(work).answer()
        of_parent = [] if url.startswith("memory:") else ["k"]
        assert held == sorted(["a", "b", "c", "d", *of_parent])
        assert (mine, evicted, free, left, purged) == (True, ["d"], True, of_parent, 0)
        assert lease.release() is True


def test_lease_of_the_parent_says_so(url: str) -> None:
    """Whatever a child tries with it, also after it has used the client itself."""
    with holdfast.connect(url) as locks, locks.acquire("k", ttl=60) as lease:

        def work(_: Child) -> Any:
            locks.acquire("mine").release()
            return [raised(call) for call in (lease.renew, lease.hand_over, lease.check)]

        for said in Child(work).answer():
            assert said.startswith(LeaseLost.__name__), said
            assert "it belongs to the parent process" in said
        lease.renew()


def test_closed_client_stays_closed(url: str) -> None:
    """Also in a child, whichever of the two has closed it."""
    locks = holdfast.connect(url)

    def close_and_use(_: Child) -> Any:
        locks.close()
        return raised(lambda: locks.acquire("k"))

    assert Child(close_and_use).answer().startswith("ClientClosed")
    with locks:
        locks.acquire("k").release()
    assert Child(lambda _: raised(lambda: locks.acquire("k"))).answer().startswith("ClientClosed")


def test_grandchildren(url: str) -> None:
    """A child of a child works too, whether or not its parent has used the client."""
    with holdfast.connect(url) as locks:
        locks.acquire("k").release()

        def grandchild(_: Child) -> Any:
            with locks.acquire("k", timeout=20) as lease:
                return lease.held

        def unused(_: Child) -> Any:
            return Child(grandchild).answer()

        def used(_: Child) -> Any:
            with locks.acquire("other"):
                return Child(grandchild).answer(), locks.show("other").free

        assert Child(unused).answer() is True
        assert Child(used).answer() == [True, False]


def test_threads_of_a_child_share_one_client(url: str) -> None:
    """Its first calls may come at the same time."""
    with holdfast.connect(url) as locks:

        def work(_: Child) -> Any:
            clients: list[Any] = []
            together = threading.Barrier(4)

            def use() -> None:
                together.wait(10)
                with locks.acquire("k", timeout=20) as lease:
                    clients.append(id(lease._client))

            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return len(clients), len(set(clients))

        assert Child(work).answer() == [4, 1]


def test_clients_that_share_a_memory_store(tmp_path: Path) -> None:
    """They share one in a child, too; it is empty."""
    store = MemoryStore()
    one, other = holdfast.Locks(store), holdfast.Locks(store)
    one.acquire("k", ttl=60)

    def work(_: Child) -> Any:
        with one.acquire("k", timeout=0):
            return other.try_acquire("k") is None, Child(work_again).answer()

    def work_again(_: Child) -> Any:
        with other.acquire("k", timeout=0):
            return one.try_acquire("k") is None

    assert Child(work).answer() == [True, True]


def test_a_store_that_does_not_know_forks() -> None:
    """Somebody's own store says what it lacks."""

    class Own(NullStore):
        for_child = Store.for_child  # type: ignore[assignment]

    locks = holdfast.Locks(Own())
    said = Child(lambda _: raised(lambda: locks.acquire("k"))).answer()
    assert said.startswith("ClientForked: A Own cannot be used across a fork")
    assert "for_child()" in said


def test_fork_in_the_middle_of_an_acquire(tmp_path: Path) -> None:
    """As by a signal handler. The call fails in the child, and undoes nothing of the parent's."""
    pipe = os.pipe()

    class Forking(SQLiteStore):
        forked = False

        def swap(self, *args: Any) -> Any:
            outcome = super().swap(*args)
            if not Forking.forked:
                Forking.forked = True
                if os.fork() == 0:
                    os.write(pipe[1], b"child\n")
            return outcome

    process = os.getpid()
    with holdfast.Locks(Forking(tmp_path / "locks.db")) as locks:
        try:
            lease = locks.acquire("k", ttl=60)
        except BaseException as exc:
            if os.getpid() != process:
                os.write(pipe[1], type(exc).__name__.encode() + b"\n")
            raise
        finally:
            if os.getpid() != process:
                os.write(pipe[1], b"end\n")
                os._exit(0)
        os.wait()
        assert os.read(pipe[0], 100).split() == [b"child", b"ClientForked", b"end"]
        lease.renew()
        assert locks.try_acquire("k") is None


def test_a_fork_of_which_nobody_is_told(tmp_path: Path) -> None:
    """Some servers fork without Python's hooks. A client notices by itself.

    It sleeps first, until its threads do: a thread that waits for the interpreter's lock at such a
    fork counts as a waiter in the child for ever, and there glibc blocks the next one to signal.
    """
    code = (
        "import ctypes, os, time, holdfast\n"
        f"locks = holdfast.connect('file://{tmp_path}/locks')\n"
        "lease = locks.acquire('k', ttl=60)\n"
        "time.sleep(0.3)\n"
        "if ctypes.PyDLL(None).fork() == 0:\n"
        "    assert not lease.held and lease.release() is False\n"
        "    assert locks.try_acquire('k') is None\n"
        "    with locks.acquire('mine') as mine:\n"
        "        assert mine.owner.endswith(f':{os.getpid()}')\n"
        "    print('worked', flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "lease.renew()\n"
        "print('parent')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["worked", "parent"], ran.stderr


def test_a_fork_of_which_nobody_is_told_on_sqlite(tmp_path: Path) -> None:
    """A file that was open then is refused, and the error says what to do."""
    code = (
        "import ctypes, os, time, holdfast\n"
        f"locks = holdfast.connect('sqlite://{tmp_path}/locks.db')\n"
        "locks.acquire('k').release()\n"
        "time.sleep(0.3)\n"
        "if ctypes.PyDLL(None).fork() == 0:\n"
        "    try:\n"
        "        locks.acquire('k')\n"
        "    except holdfast.Misconfigured as why:\n"
        "        print(why, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "locks.acquire('k')\n"
        "print('parent')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "py-call-uwsgi-fork-hooks" in ran.stdout, ran.stderr
    assert ran.stdout.endswith("parent\n")


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
            return lease.held and not locks.show("t0").free

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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("hook", ["pause", "resume"])
def test_an_interrupt_amid_the_hooks_of_a_fork(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ignores it there, and goes on with the fork. All stores can be used afterwards."""
    with (
        holdfast.connect(f"sqlite://{tmp_path}/sqlite") as one,
        holdfast.connect(f"sqlite://{tmp_path}/another") as another,
    ):
        poller = one._client.store._poller  # type: ignore[attr-defined]
        called, times = getattr(poller, hook), []

        def interrupted(*args: Any) -> Any:
            times.append(args)
            if len(times) == 1:
                raise KeyboardInterrupt
            return called(*args)

        with monkeypatch.context() as patched:
            patched.setattr(poller, hook, interrupted)
            assert Child(lambda _: raised(lambda: None)).answer() == "nothing"
        got: list[bool] = []
        clients = (one, another)
        thread = threading.Thread(
            target=lambda: got.extend(locks.acquire("k").release() for locks in clients),
            daemon=True,
        )
        thread.start()
        thread.join(20)
        assert times
        assert got == [True, True]


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
