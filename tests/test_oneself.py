"""Waiting for oneself: whoever waits for a lock that it holds itself is told so."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import AcquireTimeout, Busy, aio, events
from tests.helpers import memory_locks, unique

THREAD = "held by this very thread, ann"


@pytest.mark.parametrize("key", ["k", "held by 'held by "])
def test_in_the_same_thread(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """The errors say so, and so do the events and the log."""
    caplog.set_level(logging.DEBUG, "holdfast")
    told: list[events.Event] = []
    with memory_locks(owner="ann", on_event=told.append) as locks, locks.acquire(key, ttl=60):
        calls: list[tuple[type[Busy], Callable[[], Any]]] = [
            (Busy, lambda: locks.acquire(key, timeout=0)),
            (AcquireTimeout, lambda: locks.acquire(key, timeout=0.01)),
            (AcquireTimeout, lambda: locks.acquire_all(["other", key], timeout=0.01)),
            (AcquireTimeout, lambda: locks.wait_until_free(key, timeout=0.01)),
        ]
        for kind, call in calls:
            with pytest.raises(kind) as caught:
                call()
            assert f"is {THREAD}" in str(caught.value).removeprefix(repr(key))
        assert locks.try_acquire(key) is None
    assert {event.own for event in told if isinstance(event, events.Waiting)} == {"thread"}
    assert all(THREAD in line for line in caplog.messages if " is held by" in line)
    assert any(THREAD in line for line in caplog.messages)


def test_guard_that_calls_itself() -> None:
    """The usual way to get there."""
    with memory_locks() as locks:

        @locks.guard("k", timeout=0.01)
        def run(again: bool) -> None:
            if again:
                run(False)

        with pytest.raises(AcquireTimeout, match="held by this very thread"):
            run(True)


def test_other_threads_and_clients_are_others() -> None:
    """Nothing is said of a lock that another thread, or another client of this one, holds."""
    url = f"memory://{unique()}"
    said: list[str] = []

    def fail(locks: holdfast.Locks) -> None:
        with pytest.raises(Busy) as caught:
            locks.acquire("k", timeout=0)
        said.append(str(caught.value))

    with holdfast.connect(url, owner="ann") as locks, locks.acquire("k", ttl=60):
        thread = threading.Thread(target=fail, args=(locks,))
        thread.start()
        thread.join()
        with holdfast.connect(url) as other:
            fail(other)
    assert said == ["'k' is held by ann."] * 2


def test_shared_holders() -> None:
    """One of several may be oneself."""
    with memory_locks(owner="ann") as locks, locks.acquire("k", mode="shared", ttl=60):
        with pytest.raises(AcquireTimeout, match="held by this very thread, ann"):
            locks.acquire("k", timeout=0.01)


def test_in_the_same_task() -> None:
    """With asyncio it is the task; another task of the same loop is somebody else."""

    async def fail(locks: aio.Locks) -> str:
        with pytest.raises(AcquireTimeout) as caught:
            await locks.acquire("k", timeout=0.01)
        return str(caught.value)

    async def run() -> tuple[str, str]:
        async with aio.connect(f"memory://{unique()}", owner="ann") as locks:
            async with locks.acquire("k", ttl=60):
                return await fail(locks), await asyncio.create_task(fail(locks))

    mine, others = asyncio.run(run())
    assert mine == "'k' was not free within 0.01 s: it is held by this very task, ann."
    assert others == "'k' was not free within 0.01 s: it is held by ann."
