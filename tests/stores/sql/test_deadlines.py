"""Requests end by the time that their caller can use an answer, also where none comes.

Every other limit is ten minutes here, so a call that returns at all has kept its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from holdfast.core.contract import Swapped
from holdfast.core.effects import Swap
from holdfast.core.records import SECOND, Micros, Record
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.runtime import clock
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore
from holdfast.stores.sql.connections import CONNECTIONS
from tests.engines.proxy import Proxy
from tests.helpers import unique, until
from tests.stores.sql.servers import Server
from tests.stores.sql.test_pool import all_in_use, ctrl_c

__all__ = ["ctrl_c"]
pytestmark = pytest.mark.timeout(90)

PATIENT = "timeout_s=600&connect_timeout=600"
CALLS: dict[str, Callable[[Any, Micros], Any]] = {
    "load": lambda store, by: store.load("k", by),
    "swap": lambda store, by: store.swap(unique(), None, Record(1), by=by),
    "scan": lambda store, by: store.scan("", None, 10, by),
}


def soon() -> Micros:
    """When answers must be there."""
    return clock.monotonic() + SECOND // 2


def outcome(name: str) -> type[Exception]:
    """What is to be said of a call that left and got no answer."""
    return OutcomeUnknown if name == "swap" else Unavailable


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """A server that keeps its connections, and says nothing."""
    server.engine.pause()
    try:
        yield
    finally:
        server.engine.resume()


def test_frozen_server(own_server: Server) -> None:
    """Each request ends in time, and says whether it may have been carried out."""
    stores = {name: own_server.open(query=PATIENT) for name in CALLS}
    for store in stores.values():
        store.setup()
    with frozen(own_server):
        for name, store in stores.items():
            with pytest.raises(outcome(name)):
                CALLS[name](store, soon())
            # The connection is gone, and no other one is to be had.
            with pytest.raises(Unavailable):
                CALLS[name](store, soon())
            with pytest.raises(Unavailable):
                CALLS[name](store, clock.monotonic() - 1)
    for store in stores.values():
        assert isinstance(store.swap(unique(), None, Record(1)), Swapped)


def test_frozen_server_and_a_batch(own_server: Server) -> None:
    """Of many writes in one trip each is unknown."""
    store = own_server.open(query=PATIENT)
    keys = [unique() for _ in range(3)]
    versions = [store.swap(key, None, Record(1)) for key in keys]
    swaps = [
        Swap(key, there.version, Record(2))
        for key, there in zip(keys, versions, strict=True)
        if isinstance(there, Swapped)
    ]
    with frozen(own_server):
        outcomes = store.swap_many(swaps, soon())
    assert [type(one) for one in outcomes] == [OutcomeUnknown] * 3


def test_frozen_server_for_asyncio(own_server: Server) -> None:
    """The same on an event loop."""

    async def run() -> None:
        stores = {name: own_server.open(query=PATIENT).to_async() for name in CALLS}
        for store in stores.values():
            await store.setup()
        with frozen(own_server):
            for name, store in stores.items():
                with pytest.raises(outcome(name)):
                    await CALLS[name](store, soon())
                with pytest.raises(Unavailable):
                    await CALLS[name](store, soon())
        for store in stores.values():
            assert isinstance(await store.swap(unique(), None, Record(1)), Swapped)
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", CALLS)
def test_black_hole(server: Server, name: str) -> None:
    """A network that swallows packets, also those of a new connection; later all is well."""
    with Proxy(server.engine.port) as proxy:
        store = open_store(server.url(port=str(proxy.port), query=PATIENT))
        store.setup()
        proxy.mode = "drop replies"
        with pytest.raises(outcome(name)):
            CALLS[name](store, soon())
        with pytest.raises(Unavailable):
            CALLS[name](store, soon())
        proxy.mode = "pass"
        assert isinstance(store.swap(unique(), None, Record(1)), Swapped)
        store.close()


def test_a_late_answer_reaches_nobody(server: Server) -> None:
    """The connection of a request that was given up is closed, and its answer is not taken for
    that of the next one."""
    with Proxy(server.engine.port) as proxy:
        store = open_store(server.url(port=str(proxy.port), query=PATIENT))
        assert isinstance(store, SQLStore)
        swapped = store.swap(key := unique(), None, Record(7))
        assert isinstance(swapped, Swapped)
        (before,) = store.transport.pool._all
        proxy.mode = "drop replies"
        with pytest.raises(Unavailable):
            store.load(key, soon())
        proxy.mode = "pass"
        assert store.load("nobody's").version is None
        assert before not in store.transport.pool._all
        assert before.is_gone()
        store.close()


def test_no_connection_in_time(server: Server) -> None:
    """Whoever waits for a connection of the pool does so until then, and nothing was sent."""
    store = server.open(query=f"pool_size=1&{PATIENT}")
    store.setup()
    with all_in_use(store):
        for call in CALLS.values():
            with pytest.raises(Unavailable, match="pool_size"):
                call(store, soon())


def test_no_connection_of_the_application_in_time(server: Server) -> None:
    """The same with an application's pool, which would wait for longer."""
    engine, given_back = server.pool(pool_size=1, max_overflow=0, pool_timeout=600), list[Any]()
    store = open_store(engine)
    store.setup()
    event.listen(engine, "checkin", lambda driver, record: given_back.append(driver))
    with engine.connect():
        for call in CALLS.values():
            with pytest.raises(Unavailable):
                call(store, soon())
    # What comes too late is given back at once. SQLAlchemy closes only what was before `dispose`.
    until(lambda: len(given_back) == 1 + len(CALLS))
    assert isinstance(store.swap(unique(), None, Record(1)), Swapped)
    engine.dispose()


def test_a_connection_that_is_still_being_opened(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the thread that opens it touches it, also when nobody waits for it any more: libpq
    crashes if another one closes it meanwhile."""
    store, go_on, ended = server.open(query=PATIENT), threading.Event(), list[Any]()
    kind = CONNECTIONS[server.kind]
    terminate = kind.terminate

    def note(connection: Any) -> None:
        ended.append((threading.current_thread().name, go_on.is_set()))
        terminate(connection)

    monkeypatch.setattr(kind, "prepare", lambda connection: go_on.wait(60))
    monkeypatch.setattr(kind, "terminate", note)
    with pytest.raises(Unavailable):
        store.load("k", soon())
    assert ended == []
    go_on.set()
    until(lambda: ended)
    assert ended == [("holdfast-connect", True)]


@pytest.mark.parametrize("connected", [True, False])
def test_ctrl_c(own_server: Server, connected: bool, ctrl_c: threading.Timer) -> None:
    """It ends a call although the server does not even end the statement."""
    store = own_server.open(query=PATIENT)
    if connected:
        store.setup()
    with frozen(own_server):
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt):
            store.swap(unique(), None, Record(1))
    assert isinstance(store.swap(unique(), None, Record(1)), Swapped)


@pytest.mark.parametrize("connected", [True, False])
def test_cancellation(own_server: Server, connected: bool) -> None:
    """So does a cancellation, and what is left of the call holds nobody up."""

    async def run() -> None:
        store: Any = own_server.open(query=PATIENT).to_async()
        if connected:
            await store.setup()
        with frozen(own_server):
            await cancelled(store.swap(unique(), None, Record(1)))
        assert isinstance(await store.swap(unique(), None, Record(1)), Swapped)
        await store.close()

    async def cancelled(call: Awaitable[Any]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await call

    asyncio.run(run())


def test_close_of_a_frozen_server(own_server: Server) -> None:
    """Nobody waits for its goodbye."""
    store = own_server.open(query=PATIENT)
    store.setup()
    handle = store.register_wait("k", None, "t", bool)
    time.sleep(0.5)  # a listener listens
    with frozen(own_server):
        store.cancel_wait(handle)
        store.close()

    async def run() -> None:
        store: Any = own_server.open(query=PATIENT).to_async()
        await store.setup()
        with frozen(own_server):
            await store.close()

    asyncio.run(run())
