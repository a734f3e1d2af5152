"""No file descriptor is left: what is said, and that wake-ups come back when there are some."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import holdfast
from holdfast import Unavailable, aio
from holdfast.core.records import SECOND
from holdfast.stores.redis import RedisStore
from tests.descriptors import no_descriptors
from tests.engines.redis import RedisServer, client
from tests.helpers import unique, until
from tests.stores.redis.test_idle import answer
from tests.stores.redis.test_notify import Teller, Waiting

FACES = pytest.mark.parametrize("face", ["sync", "async"])


@FACES
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_new_client(server: RedisServer, host: str, face: str) -> None:
    """It says what is missing, also where redis-py takes the name of the server for unknown or
    cannot open a file of its own; and it works as soon as there is a descriptor."""
    client(server.port).close()  # from now on redis-py knows which file to open
    url = server.url.replace("127.0.0.1", host)

    async def run() -> None:
        locks: Any = holdfast.connect(url) if face == "sync" else aio.connect(url)
        with no_descriptors(), pytest.raises(Unavailable, match="limit of open files"):
            await answer(locks.try_acquire(unique()))
        lease = await answer(locks.try_acquire(unique()))
        assert await answer(lease.release()) is True
        await answer(locks.close())

    asyncio.run(run())


def test_wake_ups_of_threads_come_back(server: RedisServer, store: RedisStore, key: str) -> None:
    """Who waits without descriptors is not told; who waits afterwards is."""
    store.load(key)
    with no_descriptors():
        store.wait(key, None, "a", SECOND // 5)
    waiting = Waiting(store, key, "b")
    Teller(server, store, key).calls(waiting)
    until(waiting.is_over)


def test_wake_ups_of_tasks_come_back(server: RedisServer, store: RedisStore, key: str) -> None:
    """The same on an event loop."""

    async def run() -> None:
        tasks = store.to_async()
        await tasks.load(key)
        with no_descriptors():
            await tasks.wait(key, None, "a", SECOND // 5)
        waiting = asyncio.ensure_future(tasks.wait(key, 1, "b", 600 * SECOND))
        with client(server.port) as redis:
            channel = store.names.channels(key)[0]
            while not redis.publish(channel, "2 b"):
                await asyncio.sleep(0.02)
        await asyncio.wait_for(waiting, 30)
        await tasks.close()

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_dies_is_replaced(
    server: RedisServer, store: RedisStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it died of: here of what no server can do to it."""
    died = threading.Event()

    def die() -> None:
        died.set()
        raise SystemExit  # ends a thread without a word

    with monkeypatch.context() as trouble:
        trouble.setattr(store._listener, "_connect", die)
        store.wait(key, None, "a", SECOND // 5)
    assert died.is_set()
    waiting = Waiting(store, key, "b")
    Teller(server, store, key).calls(waiting)
    until(waiting.is_over)


def test_a_surprise_is_told_and_survived(
    server: RedisServer, store: RedisStore, key: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A fault that nobody has foreseen does not end wake-ups, and does not go unsaid."""

    def fail() -> None:
        raise MemoryError("just now")

    with monkeypatch.context() as trouble:
        trouble.setattr(store._listener, "_connect", fail)
        store.wait(key, None, "a", SECOND // 5)
    assert "just now" in caplog.text
    waiting = Waiting(store, key, "b")
    Teller(server, store, key).calls(waiting)
    until(waiting.is_over)
