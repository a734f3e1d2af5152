"""The memory store: names, pages, threads."""

from __future__ import annotations

import threading

import pytest

import holdfast
from holdfast import BadURL
from holdfast.core.records import Record
from holdfast.stores.memory import MemoryStore
from holdfast.stores.registry import open_store
from tests.helpers import unique


def test_names() -> None:
    """The same name is the same store; another name, and a nameless one made by hand, are not."""
    name = unique()
    assert open_store(f"memory://{name}") is open_store(f"memory://{name}")
    assert open_store(f"memory://{name}") is not open_store(f"memory://{name}x")
    assert open_store("memory://") is open_store("memory:")
    assert MemoryStore() is not MemoryStore()


@pytest.mark.parametrize("url", ["memory://a/b", "memory://?x=1", "memory:/path"])
def test_nothing_else(url: str) -> None:
    """It has a name and no options."""
    with pytest.raises(BadURL, match="memory://NAME"):
        open_store(url)
    with pytest.raises(BadURL, match="no option busy_s"):
        holdfast.connect("memory://", busy_s=5)


def test_closing_one_client_leaves_the_others() -> None:
    """The store is shared: a client that closes takes nothing away."""
    url = f"memory://{unique()}"
    with holdfast.connect(url) as a, a.acquire("k") as lease:
        holdfast.connect(url).close()
        lease.renew()
        assert lease.held


def test_writes_during_a_scan() -> None:
    """A listing goes on while others write, in order and without an error."""
    store, stop = MemoryStore(), threading.Event()
    for number in range(200):
        store.swap(f"k{number:03}", None, Record(number))

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.swap(f"x{number}", None, Record(1))

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(20):
            keys, cursor = list[str](), None
            while True:
                page = store.scan("k", cursor, 30)
                keys += [key for key, _ in page.entries]
                cursor = page.cursor
                if cursor is None:
                    break
            assert keys == [f"k{number:03}" for number in range(200)]
    finally:
        stop.set()
        thread.join()


def test_threads_count_up() -> None:
    """Many threads under one lock lose no increment."""
    number, url = [0], f"memory://{unique()}"

    def work() -> None:
        with holdfast.connect(url) as locks:
            for _ in range(100):
                with locks.acquire("k"):
                    read = number[0]
                    number[0] = read + 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert number == [800]


def test_the_clock_does_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day may jump; the store's clock does not."""
    store = MemoryStore()
    before = store.now().latest
    monkeypatch.setattr("holdfast.runtime.clock.wall", lambda: 0)
    assert before <= store.now().latest < before + 60_000_000


def test_nobody_changes_a_note_in_place() -> None:
    """What a reader does to a record that it was shown stays with the reader."""
    store = MemoryStore()
    with holdfast.Locks(store) as locks, locks.acquire("k", note={"run": {"id": 7}}) as lease:
        store.load("k").record.holders[0].note["run"]["id"] = 8
        lease.note["run"]["id"] = 9
        locks.show("k").holders[0].note["run"]["id"] = 10
        assert locks.show("k").holders[0].note == {"run": {"id": 7}}
