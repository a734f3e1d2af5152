"""The table, the engines that it can be opened on, and what goes over the wire."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import create_async_engine

import holdfast
from holdfast import aio
from holdfast.core.commands import FREED, Decision
from holdfast.core.contract import Swapped
from holdfast.core.records import Record, encode
from holdfast.errors import BadURL, Misconfigured
from holdfast.runtime.run import run
from holdfast.stores.async_adapters import ThreadedStore
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.sql.protocol import HOPEFUL_TRIES, Answer, Query, Table
from tests.engines.proxy import Proxy
from tests.stores.sql.servers import Server

ASYNC_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+aiomysql"}


def test_a_person_can_query_it(server: Server) -> None:
    """Mode, owners, fence and expiry can be read without knowing the record's format."""
    table = server.new_table()
    with holdfast.connect(server.url(query=f"table={table}"), owner="Ann") as locks:
        ask = f"SELECT mode, owners, fence, expires_at, record FROM {table}"
        with locks.acquire("db://warehouse", ttl=60) as lease:
            ((mode, owners, fence, expires_at, record),) = server.run(ask)
            assert (mode, owners, fence) == ("exclusive", "Ann", lease.fence)
            zone = expires_at.tzinfo or UTC
            left = expires_at - datetime.now(zone).replace(tzinfo=expires_at.tzinfo)
            assert 30 < left.total_seconds() < 90
            assert "holders" in record
        ((mode, owners, _, expires_at, _),) = server.run(ask)
        assert (mode, owners, expires_at) == ("free", "", None)


def test_many_owners_fit(server: Server) -> None:
    """More owners than the column holds are cut, for people only."""
    with holdfast.connect(server.url()) as locks:
        names = [f"{number}" * 200 for number in range(8)]
        leases = [locks.acquire("owners", limit=10, owner=f"{name}\0") for name in names]
        assert len(locks.show("owners").holders) == 8
        for lease in leases:
            lease.release()


def test_schema_and_table_of_ones_choosing(server: Server) -> None:
    """The table can be in any schema, and two tables are two worlds of locks."""
    table, schema = server.new_table(), f"s{server.new_table()}"
    server.run(f"CREATE SCHEMA {schema}")
    one = server.open(query=f"table={table}&schema={schema}")
    two = server.open(query=f"table={table}")
    assert isinstance(one.swap("k", None, Record(1)), Swapped)
    assert two.load("k").version is None
    assert server.run(f"SELECT count(*) FROM {schema}.{table}") == [(1,)]


def test_keys_are_exact_whatever_the_encoding(postgres: Server) -> None:
    """A user may have an encoding set that has not all characters."""
    table = postgres.new_table()
    postgres.open(query=f"table={table}").setup()
    user = postgres.new_user(f"SELECT, INSERT, UPDATE, DELETE ON {table}")
    postgres.run(f"ALTER ROLE {user} SET client_encoding = 'latin1'")
    store = postgres.open(user=user, password="s3cret", query=f"table={table}")
    for key in ("é", "e\u0301", "ж", "😀"):
        assert isinstance(store.swap(key, None, Record(1)), Swapped)
        assert postgres.run(f"SELECT count(*) FROM {table} WHERE key = :key", key=key) == [(1,)]


def test_mode_of_the_server(mariadb: Server) -> None:
    """A server may take an empty text for NULL; a free lock has no owners all the same."""
    (mode,) = mariadb.run("SELECT @@GLOBAL.sql_mode")[0]
    mariadb.run("SET GLOBAL sql_mode = 'EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES'")
    try:
        store = mariadb.open(query=f"table={mariadb.new_table()}")
        assert isinstance(store.swap("\\'", None, Record(1)), Swapped)
        assert store.load("\\'").record == Record(1)
    finally:
        mariadb.run("SET GLOBAL sql_mode = :mode", mode=mode)


def test_ddl_is_what_setup_runs(server: Server) -> None:
    """The printed statements make a table that the store takes for its own."""
    table = server.new_table()
    store = server.open(query=f"table={table}")
    ddl = store.ddl()
    for statement in ddl.split(";\n"):
        if statement.strip():
            server.run(statement)
    store.setup()
    assert store.load("k").version is None


def test_ddl_on_the_command_line(server: Server) -> None:
    """`holdfast setup --print` prints it, and changes nothing."""
    table = server.new_table()
    url = server.url(query=f"table={table}")
    command = [sys.executable, "-m", "holdfast", "--url", url, "setup", "--print"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == server.open(query=f"table={table}").ddl()
    with pytest.raises(ProgrammingError):
        server.run(f"SELECT * FROM {table}")


def test_setup_by_many_at_once(server: Server) -> None:
    """Many workers that start at the same time make one table, and none fails."""
    table = server.new_table()
    stores = [server.open(query=f"table={table}") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda store: store.swap("k", None, Record(1)), stores))
    assert sum(isinstance(outcome, Swapped) for outcome in outcomes) == 1


def test_application_engine_is_shared(server: Server) -> None:
    """An application's engine is used, with its pool, and not closed."""
    pool = server.pool(pool_size=2)
    with holdfast.connect(pool) as locks:
        with locks.acquire("adopted"), pool.connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        assert pool.pool.checkedin() >= 1  # type: ignore[attr-defined]
    with pool.connect() as connection:
        assert connection.get_isolation_level() != "AUTOCOMMIT"
    pool.dispose()


def test_application_engine_for_asyncio(server: Server) -> None:
    """An application's AsyncEngine is used by asyncio; a blocking one serves it by threads."""

    async def use(engine: Any) -> None:
        async with aio.connect(engine) as locks, locks.acquire("adopted-aio", ttl=1.2) as lease:
            await asyncio.sleep(1.5)
            assert lease.held

    async def run() -> None:
        engine = create_async_engine(server.engine.url(ASYNC_DRIVERS[server.kind]))
        await use(engine)
        async with engine.connect() as connection:
            assert (await connection.exec_driver_sql("SELECT 1")).scalar() == 1
        await engine.dispose()

    asyncio.run(run())
    pool = server.pool()
    assert isinstance(open_store(pool).to_async(), ThreadedStore)
    asyncio.run(use(pool))
    pool.dispose()


def test_application_engine_without_a_way_to_renew(server: Server) -> None:
    """What cannot be renewed is not granted; an engine for renewals helps."""
    table = server.new_table()
    server.open(query=f"table={table}").setup()
    user = server.new_user(f"SELECT, INSERT, UPDATE, DELETE ON {table}")
    address, secret = server.url(user=user).partition(":")[2], {"password": "s3cret"}

    async def run() -> None:
        engine = create_async_engine(
            ASYNC_DRIVERS[server.kind] + ":" + address, connect_args=secret
        )
        async with aio.connect(engine, table=table) as locks:
            with pytest.raises(Misconfigured, match="sync_engine"):
                await locks.acquire("k")
        blocking = create_engine(server.driver_url(user=user), connect_args=secret)
        async with aio.connect(engine, table=table, sync_engine=blocking) as locks:
            async with locks.acquire("k") as lease:
                await lease.renew()
        await engine.dispose()
        blocking.dispose()

    asyncio.run(run())


def test_other_objects_are_refused(server: Server) -> None:
    """What is no engine of a database we know is refused."""
    with pytest.raises(BadURL, match="sqlite:///path"):
        open_store(create_engine("sqlite://"))
    with pytest.raises(BadURL, match="not on a URL"):
        open_store(create_engine(server.driver_url()).url)
    with pytest.raises(BadURL):
        open_store(3)


def test_round_trips(server: Server) -> None:
    """Two trips for a cold acquire, one for a warm one, one for a release."""
    with Proxy(server.engine.port) as proxy:
        url = server.url(port=str(proxy.port))
        with holdfast.connect(url, ttl=120) as locks:
            with locks.acquire("warm-up"):
                pass
            locks._client.observations.keys_are_new = False
            trips = []
            for _ in range(2):
                before = proxy.requests
                lease = locks.acquire(f"trips/{os.getpid()}")
                trips.append(proxy.requests - before)
                before = proxy.requests
                lease.release()
                trips.append(proxy.requests - before)
    assert trips == [2, 1, 1, 1]


def test_round_trips_of_new_keys(server: Server) -> None:
    """One trip for a new key that comes soon after another. (On a busy machine some do not.)"""
    trips = []
    with Proxy(server.engine.port) as proxy:
        with holdfast.connect(server.url(port=str(proxy.port)), ttl=120) as locks:
            for number in range(10):
                before = proxy.requests
                lease = locks.acquire(f"new/{os.getpid()}/{number}")
                trips.append(proxy.requests - before)
                lease.release()
    assert 1 in trips[1:]


def _use_in_child(store: SQLStore, results: Any) -> None:
    with holdfast.connect(os.environ["HOLDFAST_TEST_URL"]) as locks, locks.acquire("forked/child"):
        results.put("got it")


def test_fork(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child gets nothing of its parent's, and the parent's connections live on."""
    monkeypatch.setenv("HOLDFAST_TEST_URL", server.url())
    context = multiprocessing.get_context("fork")
    with holdfast.connect(server.url()) as locks:
        lease = locks.acquire("forked", ttl=60)
        results = context.Queue()
        store = server.open()
        child = context.Process(target=_use_in_child, args=(store, results))
        child.start()
        assert results.get(timeout=20) == "got it"
        child.join(20)
        assert child.exitcode == 0
        lease.renew()
        assert lease.release() is True


def test_clock_that_stands_still(server: Server) -> None:
    """Where the clock did not go forward, the version does, and the time is read by itself."""
    table = server.new_table()
    store = server.open(query=f"table={table}")
    store.swap("k", None, Record(1))
    ahead = 10**16
    server.run(f"UPDATE {table} SET version = {ahead}")
    swapped = store.swap("k", ahead, Record(2))
    assert isinstance(swapped, Swapped)
    assert swapped.version == ahead + 1
    assert swapped.now is not None
    assert swapped.now.latest < ahead


def test_a_record_is_held_still_where_others_are_faster() -> None:
    """Not after the first failure: often that was a place in the queue, and the next succeeds."""
    there = 1, 1, encode(Record(1)).decode()
    asked: list[Query] = []

    def answer(query: Query) -> Answer:
        asked.append(query)
        return Answer([] if query.writing else [there])

    change = Decision(FREED, Record(2))
    queries = PostgreSQLDialect(Table()).amend_queries("k", lambda entry: change)
    assert run(queries, {}, {Query: answer}) is None
    assert sum(query.writing for query in asked) == HOPEFUL_TRIES == 2
