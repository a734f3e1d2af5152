"""A process that has no file descriptor left, and a server that is away: what is there goes on
working, and what had to stop comes back by itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import AcquireTimeout, aio
from holdfast.core.records import Record
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore, notify
from tests.engines.proxy import Proxy
from tests.helpers import unique, until
from tests.shortage import no_descriptors
from tests.stores.sql.servers import Server

pytestmark = pytest.mark.timeout(90)

ADVICE = "open files"


# --- no file descriptors --------------------------------------------------------------------


def test_a_new_client_without_descriptors(server: Server) -> None:
    """It is told what it lacks, and that nothing was done; the same client works afterwards."""
    server.open().setup()
    with no_descriptors(), pytest.raises(Unavailable, match=ADVICE):
        holdfast.connect(server.url()).try_acquire(unique())
    with holdfast.connect(server.url()) as locks:
        with no_descriptors(), pytest.raises(Unavailable, match=ADVICE) as caught:
            locks.try_acquire(unique())
        assert caught.value.__cause__ is not None
        with locks.acquire(unique(), timeout=0) as lease:
            assert lease.held


def test_a_new_client_without_descriptors_for_asyncio(server: Server) -> None:
    """The same on an event loop."""
    server.open().setup()

    async def run() -> None:
        async with aio.connect(server.url()) as locks:
            with no_descriptors(), pytest.raises(Unavailable, match=ADVICE):
                await locks.try_acquire(unique())
            async with locks.acquire(unique(), timeout=0) as lease:
                assert lease.held

    asyncio.run(run())


COLD = """
import sys
from holdfast import connect, errors
from tests.shortage import no_descriptors
with no_descriptors():
    try:
        connect(sys.argv[1]).try_acquire("cold")
    except errors.Unavailable as exc:
        print(exc)
with connect(sys.argv[1]) as locks, locks.acquire("cold", timeout=10) as lease:
    print(lease.held)
"""


def test_a_program_that_has_not_imported_anything_yet(server: Server) -> None:
    """Not even the driver can be imported: that is no missing driver, and it works afterwards."""
    server.open().setup()
    run = subprocess.run(
        [sys.executable, "-c", COLD, server.url()], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    advice, held = run.stdout.splitlines()
    assert ADVICE in advice
    assert held == "True"


def test_waiting_and_renewing_without_descriptors(server: Server) -> None:
    """A client that has a connection waits without an error, and keeps what it holds."""
    with holdfast.connect(server.url()) as locks, holdfast.connect(server.url()) as others:
        key = unique()
        with others.acquire(key, ttl=60), locks.acquire(unique(), ttl=3) as mine:
            with no_descriptors(), pytest.raises(AcquireTimeout):
                locks.acquire(key, timeout=5)
            assert mine.held
            mine.renew()


def test_waiting_without_descriptors_for_asyncio(server: Server) -> None:
    """The same on an event loop."""

    async def run() -> None:
        async with aio.connect(server.url()) as locks, aio.connect(server.url()) as others:
            key = unique()
            async with others.acquire(key, ttl=60), locks.acquire(unique(), ttl=30):
                with no_descriptors(), pytest.raises(AcquireTimeout):
                    await locks.acquire(key, timeout=4)

    asyncio.run(run())


def test_two_threads_and_one_connection(server: Server) -> None:
    """Where no second connection can be opened, whoever comes second waits for the first."""
    store = server.open()
    store.setup()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(time.sleep, [0.05] * 4))  # its threads are there
        with no_descriptors():
            for loading in [pool.submit(store.load, f"k{n}") for n in range(200)]:
                loading.result(30)


def test_no_answer_and_no_descriptor(server: Server) -> None:
    """A request that is never answered ends in time all the same."""
    with Proxy(server.engine.port) as proxy, ThreadPoolExecutor(1) as pool:
        store = open_store(server.url(port=str(proxy.port), query="timeout_s=1"))
        store.load("k")
        proxy.mode = "drop replies"
        with no_descriptors():
            swapping = pool.submit(store.swap, unique(), None, Record(1))
            with pytest.raises(OutcomeUnknown):
                swapping.result(30)
        proxy.mode = "pass"
        store.close()


# --- the listener ---------------------------------------------------------------------------


def listening(store: SQLStore) -> Any:
    """The store's listener, once it hears."""
    found = store._listener
    assert found is not None
    until(lambda: found.live, 40)
    return found


def test_the_listener_takes_nobodys_connection(postgres: Server) -> None:
    """It listens on one of its own; those for statements stay where they are."""
    store = postgres.open(query="pool_size=1")
    store.setup()
    ((before,),) = backend_of(store)
    handle = store.register_wait(unique(), None, "t", bool)
    listening(store)
    assert backend_of(store) == [(before,)]
    store.cancel_wait(handle)


def backend_of(store: SQLStore) -> Any:
    """The server's process behind the connection that the store uses next."""
    from holdfast.stores.sql.protocol import Query

    return store.transport.execute(Query("SELECT pg_backend_pid()")).rows


def test_the_listener_after_a_shortage(postgres: Server) -> None:
    """One moment without descriptors does not end push: a waiter is soon notified again."""
    store = postgres.open()
    store.setup()
    with no_descriptors():
        handle = store.register_wait(unique(), None, "t", bool)
        time.sleep(1)
        found = store._listener
        assert found is not None
        assert not found.live
    listening(store)
    store.cancel_wait(handle)


def test_the_listener_after_a_restart(own_server: Server) -> None:
    """It comes back with the server, however long that was away."""
    if not own_server.is_postgres:
        return
    store = own_server.open()
    store.setup()
    handle = store.register_wait(unique(), None, "t", bool)
    found = listening(store)
    own_server.engine.kill()
    until(lambda: not found.live)
    time.sleep(1)
    own_server.engine.start()
    listening(store)
    store.cancel_wait(handle)


def test_a_listener_that_was_deaf_tries_again(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What did not get through once may get through later, and the next waiter finds out."""
    store = postgres.open()
    store.setup()
    with monkeypatch.context() as deafness:
        deafness.setattr(notify, "PROBE_S", 0.0)
        deafness.setattr(notify, "DEAF_FOR_S", 0.5)
        handle = store.register_wait(unique(), None, "t", bool)
        found = store._listener
        assert found is not None
        until(lambda: found.deaf)
        store.cancel_wait(handle)
    until(lambda: not found.deaf)
    handle = store.register_wait(unique(), None, "t", bool)
    listening(store)
    store.cancel_wait(handle)
