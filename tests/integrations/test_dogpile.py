"""dogpile.cache with locks of Holdfast: a value is made once, and by one at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dogpile.cache import make_region

import holdfast
from holdfast.integrations.dogpile import HoldfastProxy, Mutex
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import faulty_locks, memory_locks, unique
from tests.pages import code

PAGE = "frameworks/dogpile.md"


def test_a_value_is_made_once() -> None:
    """Many threads of several regions, which are several processes to each other, want it."""
    made: list[int] = []
    values: dict[Any, Any] = {}

    def make() -> int:
        made.append(1)
        return 7

    def ask(locks: holdfast.Locks) -> int:
        region = make_region().configure(
            "dogpile.cache.memory",
            arguments={"cache_dict": values},
            wrap=[HoldfastProxy(locks)],
        )
        found: int = region.get_or_create("answer", make)
        return found

    with memory_locks() as locks, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, [locks] * 16)) == [7] * 16
    assert made == [1]


def test_an_old_value_serves_while_a_new_one_is_made() -> None:
    """Nobody waits for what there is already: dogpile asks for the lock without waiting."""
    with memory_locks() as locks:
        region = make_region().configure(
            "dogpile.cache.memory", expiration_time=0.001, wrap=[HoldfastProxy(locks)]
        )
        region.set("answer", "old")
        threading.Event().wait(0.01)
        with locks.acquire("dogpile:answer"):
            assert region.key_is_locked("answer")
            assert region.get_or_create("answer", lambda: "new") == "old"
        assert not region.key_is_locked("answer")
        assert region.get_or_create("answer", lambda: "new") == "new"


def test_a_runner_in_the_background_releases() -> None:
    """In a thread that has not acquired the lock."""
    done = threading.Event()

    def run_later(cache: Any, key: str, make: Any, mutex: Any) -> None:
        def work() -> None:
            cache.set(key, make())
            mutex.release()
            done.set()

        threading.Thread(target=work).start()

    with memory_locks() as locks:
        region = make_region(async_creation_runner=run_later).configure(
            "dogpile.cache.memory", expiration_time=3600, wrap=[HoldfastProxy(locks)]
        )
        region.set("answer", "old")
        region.invalidate(hard=False)
        assert region.get_or_create("answer", lambda: "new") == "old"
        assert done.wait(20)
        assert region.get("answer") == "new"
        assert locks.show("dogpile:answer").free


def test_a_late_release_frees_nobody_else() -> None:
    """A thread whose lease was lost releases nothing of the thread that came after it."""
    with memory_locks() as locks:
        mutex = Mutex(locks, "value", ttl=5)
        assert mutex.acquire()
        locks.evict("value")
        with ThreadPoolExecutor(1) as other:
            assert other.submit(mutex.acquire).result(20)
            mutex.release()
            assert mutex.locked()
            other.submit(mutex.release).result(20)
        assert not mutex.locked()
        mutex.release()  # nothing is left


def test_a_timeout_is_raised() -> None:
    """dogpile would make the value without the lock if it were told False."""
    with memory_locks() as locks:
        mutex = Mutex(locks, "value", timeout=0.05)
        with locks.acquire("value"):
            assert not mutex.acquire(wait=False)
            with pytest.raises(holdfast.AcquireTimeout):
                mutex.acquire()


def test_trouble_at_the_end_does_not_cost_the_value() -> None:
    """The value is made: that the lock stays until its ttl is for the log."""
    with faulty_locks(request_timeout=0.1) as (locks, store):
        region = make_region().configure("dogpile.cache.memory", wrap=[HoldfastProxy(locks)])

        def make() -> int:
            store.plan(then="refuse")
            return 7

        try:
            assert region.get_or_create("answer", make) == 7
        finally:
            store.plan()


def test_keys_of_any_length() -> None:
    """A long key of the cache is a lock of its own, too."""
    with memory_locks() as locks:
        proxy = HoldfastProxy(locks)
        one, other = proxy.get_mutex("x" * 600 + "1"), proxy.get_mutex("x" * 600 + "2")
        assert one.acquire(wait=False)
        assert other.acquire(wait=False)
        assert not proxy.get_mutex("x" * 600 + "1").acquire(wait=False)
        one.release()
        other.release()


def test_the_page_works_as_pasted(tmp_path: Path) -> None:
    """Two processes, real Redis for values and locks: one of them makes the value."""
    (example,) = code(PAGE, "Example")
    server = shared(RedisServer)
    for place in ('"host": "cache"', '"redis://cache:6379/3"'):
        assert place in example
    example = example.replace('"host": "cache"', f'"host": "127.0.0.1", "port": {server.port}')
    example = example.replace("redis://cache:6379/3", server.url)
    month = unique()
    (tmp_path / "rates.py").write_text(
        "import pathlib, time\n"
        "def fetch(month):\n"
        "    with pathlib.Path('made').open('a') as made:\n"
        "        made.write('made ')\n"
        "    time.sleep(0.3)\n"
        "    return month\n"
    )
    (tmp_path / "program.py").write_text(f"{example}\nprint(rates({month!r}))\n")
    command = [sys.executable, "program.py"]
    both = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    try:
        assert [one.communicate(timeout=60)[0] for one in both] == [f"{month}\n"] * 2
    finally:
        for one in both:
            one.kill()
            one.wait(10)
    assert (tmp_path / "made").read_text() == "made "
