"""Servers that crash, freeze and come back, and replies that get lost on the way."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

import holdfast
from holdfast import aio
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import LeaseLost, OutcomeUnknown, Unavailable
from holdfast.stores.registry import open_store
from tests.engines.proxy import Proxy
from tests.stores.sql.servers import Server

pytestmark = pytest.mark.timeout(90)


def until(condition: Any, seconds: float = 20) -> None:
    """Wait until something is true."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "it never came"
        time.sleep(0.01)


# --- replies that get lost ------------------------------------------------------------------


def test_reset_after_a_write(server: Server) -> None:
    """A write whose reply is reset is unknown; it was done, and a load finds it."""
    with Proxy(server.engine.port) as proxy:
        store = open_store(server.url(port=str(proxy.port), query=f"table={server.new_table()}"))
        store.setup()
        proxy.mode = "reset replies"
        with pytest.raises(OutcomeUnknown) as caught:
            store.swap("k", None, Record(7))
        assert caught.value.__cause__ is not None
        with pytest.raises(Unavailable):
            store.load("k")
        proxy.mode = "pass"
        assert store.load("k").record.fence == 7
        store.close()


def test_stale_connections_are_replaced(server: Server) -> None:
    """A read on a pooled connection that broke meanwhile works, without an error."""
    with Proxy(server.engine.port) as proxy:
        store = open_store(server.url(port=str(proxy.port)))
        store.setup()
        for _ in range(3):
            proxy.cut()
            time.sleep(0.05)
            store.load("k")
        store.close()


@pytest.mark.parametrize("mode", ["drop requests", "drop replies"])
def test_no_answer(server: Server, mode: Any) -> None:
    """A request that is never answered ends after the time allowed, as unknown."""
    with Proxy(server.engine.port) as proxy:
        query = f"table={server.new_table()}&timeout_s=1"
        store = open_store(server.url(port=str(proxy.port), query=query))
        store.setup()
        proxy.mode = mode
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(7))
        assert time.monotonic() - started < 15
        proxy.mode = "pass"
        assert store.load("k").record.fence == (7 if mode == "drop replies" else 0)
        store.close()


class SoftLimit(Exception):
    """What a signal's handler raises, as Celery's does when a task takes too long."""


@contextmanager
def soft_limit(seconds: float) -> Iterator[None]:
    """Raise it here after so long."""

    def fail(*_: object) -> None:
        raise SoftLimit

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("connected", [True, False])
def test_a_signal_while_there_is_no_answer(server: Server, connected: bool) -> None:
    """What its handler raises is the caller's, and no trouble of the store's to be tried again."""
    with Proxy(server.engine.port) as proxy:
        query = f"table={server.new_table()}"
        store = open_store(server.url(port=str(proxy.port), query=query))
        if connected:
            store.setup()
        proxy.mode = "drop replies"
        with soft_limit(0.5), pytest.raises(SoftLimit):
            store.load("k")
        proxy.mode = "pass"
        store.setup()
        assert store.load("k").record.fence == 0
        store.close()


def test_no_thread_for_the_deadlines(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is trouble of the moment, and later calls have their time limit again."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Proxy(server.engine.port) as proxy:
        query = f"table={server.new_table()}&timeout_s=1"
        store = open_store(server.url(port=str(proxy.port), query=query))
        with monkeypatch.context() as shortage:
            shortage.setattr(threading.Thread, "start", fail)
            with pytest.raises(Unavailable, match="new thread"):
                store.load("k")
        store.setup()
        proxy.mode = "drop requests"
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(7))
        store.close()


def test_no_answer_for_asyncio(server: Server) -> None:
    """The same on an event loop, which goes on meanwhile."""

    async def run() -> None:
        query = f"table={server.new_table()}&timeout_s=1"
        with Proxy(server.engine.port) as proxy:
            blocking = open_store(server.url(port=str(proxy.port), query=query))
            store = blocking.to_async()
            await store.setup()
            proxy.mode = "drop replies"
            with pytest.raises(OutcomeUnknown):
                await store.swap("k", None, Record(7))
            proxy.mode = "pass"
            assert (await store.load("k")).record.fence == 7
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("debug", [False, True])
def test_closed_while_a_reply_is_late(server: Server, debug: bool) -> None:
    """Who waits for an answer when the client is closed is told; also where the loop checks
    that nobody touches its connections from another thread."""

    async def run() -> None:
        query = f"table={server.new_table()}&timeout_s=1"
        with Proxy(server.engine.port) as proxy:
            store = open_store(server.url(port=str(proxy.port), query=query)).to_async()
            await store.setup()
            proxy.mode = "drop replies"
            swap = asyncio.ensure_future(store.swap("k", None, Record(7)))
            await asyncio.sleep(0.2)
            await store.close()
            assert await asyncio.wait({swap}, timeout=20) == ({swap}, set())
            assert isinstance(swap.exception(), OutcomeUnknown)

    asyncio.run(run(), debug=debug)


def test_cancelled_write_has_finished(server: Server) -> None:
    """When a cancelled swap has ended, its write is done or will never be."""

    async def run() -> None:
        blocking = open_store(server.url(query=f"table={server.new_table()}"))
        store = blocking.to_async()
        await store.setup()
        for number in range(20):
            key = f"k{number}"
            swap = asyncio.ensure_future(store.swap(key, None, Record(1)))
            await asyncio.sleep(number * 0.0003)
            swap.cancel()
            await asyncio.wait({swap})
            seen = await store.load(key)
            await asyncio.sleep(0.01)
            assert (await store.load(key)).version == seen.version
        await store.close()

    asyncio.run(run())


def test_cancelled_write_that_has_to_wait(server: Server) -> None:
    """A cancelled swap that stands behind somebody's transaction ends when it is done, so that
    whoever looks next sees what it did."""
    table = server.new_table()

    async def run() -> None:
        store = open_store(server.url(query=f"table={table}")).to_async()
        await store.setup()
        created = await store.swap("k", None, Record(1))
        assert isinstance(created, Swapped)
        with server.transaction() as theirs:
            theirs.execute(text(f"SELECT * FROM {table} FOR UPDATE"))
            swap = asyncio.ensure_future(store.swap("k", created.version, Record(2)))
            await asyncio.sleep(0.3)
            swap.cancel()
            await asyncio.wait({swap}, timeout=0.3)
        await asyncio.wait({swap})
        seen = await store.load("k")
        await asyncio.sleep(0.5)
        assert (await store.load("k")).version == seen.version
        assert seen.record == Record(2)
        await store.close()

    asyncio.run(run())


# --- servers that come back -----------------------------------------------------------------


def test_restart_while_holding_and_renewing(own_server: Server) -> None:
    """A restart shorter than the ttl costs no lease: failed beats are tried again."""
    with holdfast.connect(own_server.url(), ttl=9) as locks:
        with locks.acquire("k") as lease:
            own_server.engine.kill()
            with pytest.raises((Unavailable, OutcomeUnknown)):
                lease.renew()
            own_server.engine.start()
            until(lambda: lease.remaining() > 6)
            assert lease.held
        assert locks.show("k").free


def test_restart_while_waiting(own_server: Server) -> None:
    """A waiter sits out a restart, and is woken by the release after it."""
    with holdfast.connect(own_server.url()) as a, holdfast.connect(own_server.url()) as b:
        lease = a.acquire("k", ttl=60)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(b.acquire, "k", ttl=60, timeout=60)
            time.sleep(0.3)
            own_server.engine.restart()
            time.sleep(0.3)
            assert not waiting.done()
            lease.release()
            heir = waiting.result(30)
            assert heir.held
            assert heir.fence > lease.fence
            heir.release()


def test_restart_while_releasing(own_server: Server) -> None:
    """A release that meets a crash goes on until the server is back."""
    with holdfast.connect(own_server.url(), ttl=60) as locks:
        lease = locks.acquire("k")
        own_server.engine.kill()
        back = threading.Timer(0.7, own_server.engine.start)
        back.start()
        assert lease.release() is True
        back.join()
        assert locks.show("k").free


def test_freeze_longer_than_the_ttl(own_server: Server) -> None:
    """A frozen server: the loss is told in time, and the lease stays lost when it thaws."""
    with holdfast.connect(own_server.url(query="timeout_s=2"), ttl=1.5) as locks:
        lease = locks.acquire("k")
        own_server.engine.pause()
        try:
            assert lease.lost.wait(10)
            with pytest.raises((Unavailable, OutcomeUnknown)):
                locks.acquire("k", timeout=0.5)
        finally:
            own_server.engine.resume()
        with pytest.raises(LeaseLost):
            lease.check()
        with locks.acquire("k", timeout=20) as heir:
            assert heir.fence > lease.fence


def test_restart_under_asyncio(own_server: Server) -> None:
    """Holding, waiting and releasing through a restart, on an event loop."""

    async def run() -> None:
        async with aio.connect(own_server.url()) as a, aio.connect(own_server.url()) as b:
            lease = await a.acquire("k", ttl=30)
            waiting = asyncio.ensure_future(_get(b))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(own_server.engine.restart)
            assert lease.held
            assert await lease.release() is True
            async with asyncio.timeout(30):
                heir = await waiting
            assert await heir.release() is True

    async def _get(locks: aio.Locks) -> aio.Lease:
        return await locks.acquire("k", ttl=30)

    asyncio.run(run())


def test_frozen_client_loses_its_lease(server: Server) -> None:
    """A swap that was computed before others moved on changes nothing."""
    one, two, key = server.open(), server.open(), f"stale/{server.new_table()}"
    first = one.swap(key, None, Record(1))
    assert isinstance(first, Swapped)
    assert isinstance(two.swap(key, first.version, Record(2)), Swapped)
    assert not isinstance(one.swap(key, first.version, Record(3)), Swapped)
    assert two.load(key).record.fence == 2
