"""Waiting on SQLite: the thread that watches the file."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast import Locks
from holdfast.core.commands import ANYONE
from holdfast.core.contract import Swapped
from holdfast.core.records import Holder, Mode, Record, Waiter, encode
from holdfast.stores.sqlite import SQLiteStore, transport
from holdfast.stores.sqlite.notify import RowLooker
from holdfast.stores.waiting.handles import WaitHandle
from tests.helpers import until


def watchers() -> int:
    """How many watching threads there are."""
    return sum(thread.name == "holdfast-watch" for thread in threading.enumerate())


def test_a_wait_wakes_quickly(path: Path, locks: Locks) -> None:
    """A lock that another client frees changes hands in a few milliseconds, mostly."""
    delays = []
    with holdfast.connect(f"sqlite://{path}") as other:
        for _ in range(7):
            lease = other.acquire("k")
            freed: list[float] = []

            def free(lease: holdfast.Lease = lease, freed: list[float] = freed) -> None:
                lease.release()
                freed.append(time.monotonic())

            timer = threading.Timer(0.05, free)
            timer.start()
            with locks.acquire("k", timeout=30):
                got = time.monotonic()
            timer.join()
            delays.append(got - freed[0])
    assert sorted(delays)[3] < 0.1


def test_the_watch_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread goes when nobody waits any more, and comes back when somebody does."""
    monkeypatch.setattr("holdfast.stores.waiting.local_poller.LINGER_S", 0.05)
    until(lambda: watchers() == 0)
    with holdfast.connect(f"sqlite://{path}") as locks, locks.acquire("k"):
        assert watchers() == 0
        for _ in range(2):
            with pytest.raises(holdfast.AcquireTimeout):
                locks.acquire("k", timeout=0.05)
            until(lambda: watchers() == 0)


def test_the_watch_ends_with_the_client(path: Path) -> None:
    """Closing ends it at once."""
    until(lambda: watchers() == 0)
    with holdfast.connect(f"sqlite://{path}") as locks, locks.acquire("k"):
        with pytest.raises(holdfast.AcquireTimeout):
            locks.acquire("k", timeout=0.05)
    until(lambda: watchers() == 0)


def test_a_watch_in_trouble(path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that fails wakes its sleepers, who look for themselves; no wait is stuck, and
    nobody turns in circles."""
    store: SQLiteStore = locks._client.store  # type: ignore[assignment]
    failures: list[int] = []

    def fail() -> transport.Connection:
        failures.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(store._poller._looker, "_connect", fail)
    with holdfast.connect(f"sqlite://{path}") as other:
        lease = other.acquire("k")
        threading.Timer(0.4, lease.release).start()
        with locks.acquire("k", timeout=30):
            assert 1 <= len(failures) < 60


def test_a_watch_comes_back_after_trouble(
    path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sleeps next is watched for again."""
    store: SQLiteStore = locks._client.store  # type: ignore[assignment]
    until(lambda: watchers() == 0)
    looker: RowLooker = store._poller._looker  # type: ignore[assignment]
    connect, calls = looker._connect, 0

    def fail_once() -> transport.Connection:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return connect()

    monkeypatch.setattr(looker, "_connect", fail_once)
    notified = threading.Event()
    first = store.register_wait("k", None, "t", notified.set)
    assert notified.wait(20)
    store.cancel_wait(first)
    second = store.register_wait("k", None, "t", notified.set)
    until(lambda: calls == 2 and watchers() == 1)
    store.cancel_wait(second)


def test_who_comes_after_the_change_is_rung_for_it(path: Path) -> None:
    """The watch has seen it before there was anybody to ring."""
    store, other = SQLiteStore(path), SQLiteStore(path)
    seen, notified = threading.Event(), threading.Event()
    first = store.register_wait("other", None, "t", seen.set)
    other.swap("k", None, Record(1), ANYONE)
    other.swap("other", None, Record(1), ANYONE)
    assert seen.wait(20)
    late = store.register_wait("k", None, "t", notified.set)
    assert notified.wait(20)
    for handle in (first, late):
        store.cancel_wait(handle)
    store.close()
    other.close()


def test_a_watch_does_not_stop_on_somebody_who_has_just_come(path: Path) -> None:
    """Between its look for sleepers and its end somebody may lie down."""
    store = SQLiteStore(path)
    watch = store._poller
    handle = WaitHandle("k", None, "t", lambda: None)
    watch.handles.add(handle)
    assert not watch._stop()
    watch.handles.discard(handle)
    assert watch._stop()
    store.close()


def test_what_happens_during_a_fork_is_seen_after_it(path: Path) -> None:
    """The file was closed meanwhile, and who opens it anew has not seen what came before."""
    holder = Holder("h", 1, "you", "exclusive", 1, 0, 1, "b")
    store, other = SQLiteStore(path), SQLiteStore(path)
    taken = other.swap("k", None, Record(1, (holder,)))
    assert isinstance(taken, Swapped)
    notified = threading.Event()
    handle = store.register_wait("k", taken.version, "t", notified.set)
    until(lambda: handle.mark is not None)
    store.pause()
    other.swap("k", taken.version, Record(1), ANYONE)
    store.resume()
    assert notified.wait(20)
    store.cancel_wait(handle)
    store.close()
    other.close()


def test_many_wait_in_one_process(locks: Locks) -> None:
    """Fifty threads who wait for one lock all get it."""
    got: list[int] = []

    def work(number: int) -> None:
        with locks.acquire("k", timeout=60):
            got.append(number)

    with locks.acquire("k"):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(50))


# --- who is rung ------------------------------------------------------------------------------


def held(mode: Mode) -> Record:
    """A record with one holder."""
    return Record(1, (Holder("t", 1, "o", mode, 1, 1, 1, "b"),))


def queued() -> Record:
    """One that nobody holds, with a place in its queue."""
    return Record(1, (), (Waiter("t", "o", "exclusive", 1, 1, 1, "b"),))


@pytest.mark.parametrize(
    ("found", "rings"),
    [(held("exclusive"), False), (held("shared"), True), (queued(), True), (Record(1), True)],
    ids=["taken again", "shared", "queued", "free"],
)
def test_who_comes_too_late_is_left_asleep(path: Path, found: Record, rings: bool) -> None:
    """A lock that was freed, and that somebody else has by now, wakes nobody; one with room
    for somebody does."""
    store = SQLiteStore(path)
    notified = {key: threading.Event() for key in ("it", "signal")}
    for key, event in notified.items():
        swapped = store.swap(key, None, held("exclusive"))
        assert isinstance(swapped, Swapped)
        store.register_wait(key, swapped.version, "me", event.set)
    handles = [one for key in notified for one in store._poller.handles.handles(key)]
    until(lambda: all(handle.mark for handle in handles))  # they have been looked at
    with closing(sqlite3.connect(path)) as another, another:
        another.executemany(
            "UPDATE holdfast_locks SET version = version + 1, turn = turn + 1, record = ? "
            "WHERE key = ?",
            [(encode(found).decode(), "it"), (encode(Record(1)).decode(), "signal")],
        )
    assert notified["signal"].wait(60)
    assert notified["it"].is_set() == rings
    store.close()
