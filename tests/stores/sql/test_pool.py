"""Pools: how many connections there are, who gets them, and what is prepared on them."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import Unavailable
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore
from holdfast.stores.sql.connections import spelled
from holdfast.stores.sql.protocol import Query
from tests.engines.base import require
from tests.engines.postgres import PgBouncer, PostgreSQL
from tests.engines.proxy import Proxy
from tests.engines.shared import shared
from tests.helpers import until
from tests.stores.sql.servers import Server


def connections_of(pool: Any) -> list[Any]:
    """The connections that a pool makes from now on."""
    made: list[Any] = []
    new_connection = pool._new_connection

    def make() -> Any:
        made.append(new_connection())
        return made[-1]

    pool._new_connection = make
    return made


def run_on(store: SQLStore, sql: str) -> Any:
    """Say something on the connection that the store would use next."""
    connection = store.transport.acquire(store.transport.ends_at())
    try:
        return connection.ask(Query(sql, shows=sql.startswith("SELECT"))).rows
    finally:
        store.transport.pool.release(connection)


def test_more_threads_than_connections(server: Server) -> None:
    """Threads share a few connections, and none is closed and made anew."""
    store = server.open(query="pool_size=3")
    made = connections_of(store.transport.pool)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda number: store.load(f"shared/{number}"), range(300)))
    assert 1 <= len(made) <= 3


def test_more_tasks_than_connections(server: Server) -> None:
    """So do tasks, also when some of those that wait for a connection are cancelled."""

    async def run() -> None:
        blocking = open_store(server.url(query="pool_size=2"))
        store: Any = blocking.to_async()
        await store.setup()
        made = connections_of(store.transport.pool)
        tasks = [asyncio.ensure_future(store.load(f"shared/{n}")) for n in range(60)]
        await asyncio.sleep(0.003)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        for number in range(20):
            await store.load(f"shared/{number}")
        assert len(made) <= 2
        await store.close()

    asyncio.run(run())


@contextmanager
def all_in_use(store: SQLStore) -> Iterator[None]:
    """Somebody has the only connection."""
    connection = store.transport.acquire(store.transport.ends_at())
    yield
    store.transport.pool.release(connection)


def test_no_connection_left(server: Server) -> None:
    """Whoever waits in vain for a connection is told so; one that comes back in time helps."""
    store = server.open(query="pool_size=1&timeout_s=1")
    store.setup()
    with all_in_use(store), pytest.raises(Unavailable, match="pool_size"):
        store.load("k")
    with ThreadPoolExecutor(3) as pool:
        with all_in_use(store):
            waiting = [pool.submit(store.load, "k") for _ in range(3)]
            time.sleep(0.1)
        for load in waiting:
            load.result(10)


def test_nobody_overtakes_whoever_waits_for_a_connection(server: Server) -> None:
    """Not even a thread that gives one back and comes again before the other is awake: with a few
    such threads the others, and renewals with them, would wait until their time is over."""
    store = server.open(query="pool_size=1")
    store.setup()
    pool = store.transport.pool
    with ThreadPoolExecutor(1) as threads:
        for _ in range(20):
            connection = store.transport.acquire(store.transport.ends_at())
            waiting = threads.submit(store.load, "k")
            until(lambda: pool._waiting)
            pool.release(connection)
            assert pool.idle() is None
            waiting.result(20)
    connection = pool.idle()
    assert connection is not None
    pool.release(connection)


def test_no_task_overtakes_another_that_waits_for_a_connection(server: Server) -> None:
    """The same on an event loop."""

    async def run() -> None:
        blocking = open_store(server.url(query="pool_size=1"))
        store: Any = blocking.to_async()
        await store.setup()
        pool = store.transport.pool
        connection = await store.transport.acquire(store.transport.ends_at())
        waiting = [asyncio.ensure_future(store.load("k")) for _ in range(3)]
        while len(pool._waiting) < 3:
            await asyncio.sleep(0)
        waiting[0].cancel()
        await pool.release(connection)
        assert await pool.idle() is None
        await asyncio.gather(*waiting[1:])
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        connection = await pool.idle()
        assert connection is not None
        await pool.release(connection)
        await store.close()
        blocking.close()

    asyncio.run(run())


def test_whoever_waits_looks_by_itself_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was told of a connection may have been interrupted, and told nobody."""
    monkeypatch.setattr("holdfast.stores.sql.pool.LOOK_AGAIN_S", 0.02)
    store = server.open(query="pool_size=1&timeout_s=60")
    store.setup()
    pool = store.transport.pool
    with ThreadPoolExecutor(1) as threads:
        connection = store.transport.acquire(store.transport.ends_at())
        waiting = threads.submit(store.load, "k")
        until(lambda: pool._waiting)
        pool._idle.append(connection)
        waiting.result(20)


def test_a_connection_is_taken_while_the_pool_is_closed(server: Server) -> None:
    """By another thread, between the look for an idle one and taking it."""
    store = server.open()
    store.setup()
    pool = store.transport.pool
    taken: list[Any] = []

    class Shared(list[Any]):
        def pop(self, *place: Any) -> Any:  # what the other thread does just before
            if not taken:
                taken.append(super().pop())
            return super().pop(*place)

    pool._idle = Shared(pool._idle)
    store.close()
    assert len(taken) == 1
    pool.release(taken[0])  # it is closed when it comes back
    assert not pool._idle
    assert not pool._all


def test_whoever_waits_for_a_connection_is_told_of_the_end(server: Server) -> None:
    """A store that is closed lets nobody wait."""
    store = server.open(query="pool_size=1&timeout_s=60")
    store.setup()
    with ThreadPoolExecutor(1) as pool:
        with all_in_use(store):
            waiting = pool.submit(store.load, "k")
            time.sleep(0.1)
            store.close()
        with pytest.raises(Unavailable):
            waiting.result(20)


def test_no_thread_is_left(server: Server) -> None:
    """Clients that come and go quickly leave no thread behind that waits for a late answer."""
    before = set(threading.enumerate())
    store = server.open(query="timeout_s=600")
    store.setup()
    store.close()
    until(lambda: set(threading.enumerate()) <= before)


def test_a_late_answer_after_the_end(server: Server) -> None:
    """What was asked before the store was closed is given up when its time is over."""
    with Proxy(server.engine.port) as proxy, ThreadPoolExecutor(1) as pool:
        store = open_store(server.url(port=str(proxy.port), query="timeout_s=2"))
        store.setup()
        proxy.mode = "drop replies"
        waiting = pool.submit(store.load, "k")
        time.sleep(0.2)
        store.close()
        with pytest.raises(Unavailable):
            waiting.result(30)


def test_a_statement_under_way_when_a_loops_store_is_closed(server: Server) -> None:
    """It fails at once. (Before, psycopg's connection was closed under it. It went on when the loop
    had opened another connection with the same number: a segmentation fault.)"""

    async def closes() -> None:
        store: Any = open_store(server.url()).to_async()
        connections = connections_of(store.transport.pool)
        sleep = "SELECT pg_sleep(30)" if server.is_postgres else "SELECT SLEEP(30)"
        statement = asyncio.ensure_future(store.transport.execute(Query(sleep)))
        await asyncio.sleep(0.5)
        store.transport.hang_up()
        assert not (server.is_postgres and connections[0].is_gone())
        async with asyncio.timeout(3):
            with pytest.raises(Unavailable):
                await statement
        await store.close()
        assert all(connection.is_gone() for connection in connections)

    asyncio.run(closes())


def test_all_connections_were_cut(server: Server) -> None:
    """When one is found to be cut, the others are not tried: a read needs no luck."""
    with Proxy(server.engine.port) as proxy:
        store = open_store(server.url(port=str(proxy.port)))
        assert isinstance(store, SQLStore)
        store.setup()
        connections = [store.transport.acquire(store.transport.ends_at()) for _ in range(5)]
        for connection in connections:
            store.transport.pool.release(connection)
        proxy.cut()
        time.sleep(0.05)
        for _ in range(5):
            store.load("k")
        store.close()


@pytest.fixture
def ctrl_c() -> Iterator[threading.Timer]:
    """Pressed in half a second; also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    press = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
    yield press
    press.join()
    signal.signal(signal.SIGINT, before)


def test_interrupted_statement(server: Server, ctrl_c: threading.Timer) -> None:
    """Ctrl-C ends a statement that waits at the server, and the store goes on."""
    table = server.new_table()
    store = server.open(query=f"table={table}&timeout_s=60")
    swapped = store.swap("k", None, Record(1))
    assert isinstance(swapped, Swapped)
    with server.transaction() as other:
        other.execute(text(f"SELECT * FROM {table} FOR UPDATE"))
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt):
            store.swap("k", swapped.version, Record(2))
    # A write, which is not tried again by itself on a connection that turns out to be broken.
    assert isinstance(store.swap("other", None, Record(1)), Swapped)
    assert store.load("k").version is not None


def test_application_hears_of_our_statements(server: Server) -> None:
    """Whoever listens to their engine's events hears of the statements of the locks."""
    engine, heard = server.pool(), list[str]()

    def hear(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        heard.append(statement)

    event.listen(engine, "before_cursor_execute", hear)
    store = open_store(engine)
    store.swap("heard", store.load("heard").version, Record(1))
    assert any("holdfast_locks" in statement for statement in heard)
    engine.dispose()


# --- prepared statements of PostgreSQL ------------------------------------------------------

PREPARED = "SELECT count(*) FROM pg_prepared_statements"


def use(store: SQLStore, key: str) -> None:
    """Read and write often enough."""
    version = store.load(key).version
    for number in range(10):
        store.load(key)
        swapped = store.swap(key, version, Record(number))
        assert isinstance(swapped, Swapped)
        version = swapped.version


def test_prepared_where_nothing_is_between(postgres: Server) -> None:
    """What is said often to the server itself is prepared."""
    store = postgres.open()
    use(store, f"prepared/{postgres.new_table()}")
    ((count,),) = run_on(store, PREPARED)
    assert count >= 2


def test_not_prepared_behind_a_pooler(postgres: Server) -> None:
    """A pooler has process ids of its own, and nothing is prepared through it."""
    require(PgBouncer)
    with PgBouncer(shared(PostgreSQL)) as pooler:
        assert isinstance(pooler, PgBouncer)
        store = open_store(pooler.url("wakeup=poll"))
        assert isinstance(store, SQLStore)
        use(store, f"pooled/{postgres.new_table()}")
        assert run_on(store, PREPARED) == [(0,)]
        store.close()


def test_prepared_statement_is_gone(postgres: Server) -> None:
    """Should something take the session away all the same, the statement is sent again."""
    store, key = postgres.open(), f"prepared/{postgres.new_table()}"
    use(store, key)
    run_on(store, "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
    use(store, key)
    entry = store.load(key)
    run_on(store, "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
    assert isinstance(store.swap(key, entry.version, Record(7)), Swapped)


# --- drivers --------------------------------------------------------------------------------


@pytest.mark.parametrize("paramstyle", ["pyformat", "format"])
def test_statements_are_spelled_for_drivers(server: Server, paramstyle: str) -> None:
    """On an application's engine each driver gets values in its own way, also those named twice."""
    engine = server.pool(paramstyle=paramstyle)
    store = open_store(engine)
    key = f"%s :key {server.new_table()}"
    assert isinstance(store.swap(key, store.load(key).version, Record(7)), Swapped)
    assert store.load(key).record.fence == 7
    engine.dispose()


def test_statements_are_spelled_for_our_own_drivers() -> None:
    """psycopg, PyMySQL and aiomysql share one way to name values."""
    values = {"a": 1, "b": 2}
    sql = "SELECT :b, :a, :b, CAST('1%' AS x), '12:30'"
    assert spelled(Query(sql, values)) == (
        "SELECT %(b)s, %(a)s, %(b)s, CAST('1%%' AS x), '12:30'",
        values,
    )
    assert spelled(Query("SELECT '1%'")) == ("SELECT '1%'", None)


def test_private_attributes_are_still_there(mariadb: Server) -> None:
    """PyMySQL's socket and aiomysql's reader are looked at between statements, and the socket is
    shut down when an answer is late. If one of them is gone, find another way (docs/adr/0009)."""
    store = mariadb.open()
    connection = store.transport.acquire(store.transport.ends_at())
    assert connection.driver._sock.fileno() > 0
    assert connection._poll is not None
    store.transport.pool.release(connection)

    async def run() -> None:
        store: Any = open_store(mariadb.url()).to_async()
        await store.load("k")
        connection = await store.transport.acquire(store.transport.ends_at())
        assert connection.driver._reader.at_eof() is False
        assert connection.driver._reader.exception() is None
        assert not connection.is_closed_by_server()
        await store.transport.pool.release(connection)
        await store.close()

    asyncio.run(run())


# --- a store that nobody closed ---------------------------------------------------------------


def opened(pool: Any) -> list[weakref.ref[Any]]:
    """The driver's connections that a pool has open, without keeping them."""
    return [weakref.ref(connection.driver) for connection in pool._all]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # psycopg complains
def test_a_store_that_is_dropped_leaves_no_connection(server: Server) -> None:
    """It was not closed, and nobody refers to it any more."""
    store = open_store(server.url())
    assert isinstance(store, SQLStore)
    store.load("dropped")
    made = opened(store.transport.pool)
    assert [connection() is None for connection in made] == [False]
    del store
    until(lambda: gc.collect() >= 0 and all(connection() is None for connection in made))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:The garbage collector is trying to clean up")
def test_an_async_store_that_is_dropped_leaves_no_connection(server: Server) -> None:
    """The same for asyncio, while its event loop goes on."""

    async def run() -> None:
        blocking = open_store(server.url())
        store = blocking.to_async()
        await store.load("dropped")
        made = opened(store.transport.pool)  # type: ignore[attr-defined]
        assert [connection() is None for connection in made] == [False]
        del store, blocking
        async with asyncio.timeout(20):
            while not all(connection() is None for connection in made):
                await asyncio.sleep(0.01)
                gc.collect()

    asyncio.run(run())
