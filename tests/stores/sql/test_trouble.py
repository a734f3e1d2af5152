"""What a busy database does to a statement, and what becomes of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from holdfast.core.contract import Conflict, Swapped
from holdfast.core.records import Record
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore, transport
from holdfast.stores.sql.errors import MYSQL, POSTGRES, Again, Broken, trouble
from tests.helpers import until
from tests.stores.sql.servers import Server

RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


def store_as(server: Server, table: str, *settings: str) -> SQLStore:
    """A store for a user with settings of its own (PostgreSQL)."""
    server.open(query=f"table={table}").setup()
    user = server.new_user(f"{RIGHTS} ON {table}")
    for setting in settings:
        server.run(f"ALTER ROLE {user} SET {setting}")
    return server.open(user=user, password="s3cret", query=f"table={table}")


def made(outcome: object) -> int:
    """The version that a swap wrote."""
    assert isinstance(outcome, Swapped)
    assert isinstance(outcome.version, int)
    return outcome.version


def test_lock_wait_timeout(server: Server) -> None:
    """A row that somebody else keeps locked is an unavailable store; nothing was done."""
    table = server.new_table()
    if server.is_postgres:
        store = store_as(server, table, "lock_timeout = '300ms'")
    else:
        store = server.open(query=f"table={table}")
    version = made(store.swap("k", None, Record(1)))
    with server.transaction() as other:
        other.execute(text(f"SELECT * FROM {table} FOR UPDATE"))
        with pytest.raises(Unavailable) as caught:
            store.swap("k", version, Record(2))
        assert caught.value.__cause__ is not None
        assert store.load("k").record.fence == 1
    made(store.swap("k", version, Record(2)))


def test_deadlock_is_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that a deadlock undid (40P01, 1213) is sent again, and gets through."""
    lost: list[HoldfastError] = []

    def pause(exc: HoldfastError, tries: int) -> float:
        lost.append(exc)
        return 0.01

    monkeypatch.setattr(transport, "pause_before_retry", pause)
    table, other_table = server.new_table(), server.new_table()
    server.run(f"CREATE TABLE {other_table} (id INTEGER PRIMARY KEY, n INTEGER)")
    if server.is_postgres:
        store = store_as(server, table, "deadlock_timeout = '100ms'")
        version = made(store.swap("k", None, Record(1)))
        server.run(
            f"CREATE FUNCTION f_{table}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
            f"$$ BEGIN UPDATE {other_table} SET n = n + 1 WHERE id = 1; RETURN NEW; END $$"
        )
        server.run(
            f"CREATE TRIGGER tr AFTER UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION f_{table}()"
        )
    else:
        store = server.open(query=f"table={table}")
        version = made(store.swap("k", None, Record(1)))
        server.run(
            f"CREATE TRIGGER tr_{table} AFTER UPDATE ON {table} FOR EACH ROW "
            f"UPDATE {other_table} SET n = n + 1 WHERE id = 1"
        )
    server.run(f"INSERT INTO {other_table} VALUES (1, 0)")
    with ThreadPoolExecutor(1) as pool, server.transaction() as other:
        for number in range(2, 60):  # so that InnoDB undoes the other one, which did less
            other.execute(text(f"INSERT INTO {other_table} VALUES ({number}, 0)"))
        other.execute(text(f"UPDATE {other_table} SET n = 7 WHERE id = 1"))
        swapping = pool.submit(store.swap, "k", version, Record(2))
        _until_it_waits(server)
        other.execute(text(f"UPDATE {table} SET turn = turn"))
        other.rollback()
        assert isinstance(swapping.result(10), Swapped)
    assert server.run(f"SELECT n FROM {other_table} WHERE id = 1") == [(1,)]
    assert [type(exc) for exc in lost] == [Again]


def test_serialization_failure_is_tried_again(postgres: Server) -> None:
    """With serializable transactions by default (40001), no swap is lost and none fails."""
    store = store_as(postgres, postgres.new_table(), "default_transaction_isolation=serializable")

    def count(times: int) -> None:
        entry = store.load("k")
        while times:
            outcome = store.swap("k", entry.version, Record(entry.record.fence + 1))
            times -= isinstance(outcome, Swapped)
            entry = outcome.entry if isinstance(outcome, Conflict) else store.load("k")

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(count, 15) for _ in range(4)]:
            done.result(60)
    assert store.load("k").record.fence == 60


def test_statement_timeout(postgres: Server) -> None:
    """A statement that the server cancelled was surely not carried out."""
    table = postgres.new_table()
    store = store_as(postgres, table, "statement_timeout = '300ms'")
    version = made(store.swap("k", None, Record(1)))
    with postgres.transaction() as other:
        other.execute(text(f"SELECT * FROM {table} FOR UPDATE"))
        with pytest.raises(Unavailable):
            store.swap("k", version, Record(2))


def test_pool_exhaustion(server: Server) -> None:
    """A pool without a free connection is an unavailable store, and says so."""
    pool = server.pool(pool_size=1, max_overflow=0, pool_timeout=0.2)
    store = open_store(pool)
    store.setup()
    with pool.connect(), pytest.raises(Unavailable, match="pool"):
        store.load("k")
    assert store.load("k").now is not None
    pool.dispose()


def test_server_has_no_connection_left(server: Server) -> None:
    """Too many connections at the server is an unavailable store."""
    table = server.new_table()
    server.open(query=f"table={table}").setup()
    user = server.new_user(f"{RIGHTS} ON {table}")
    if server.is_postgres:
        server.run(f"ALTER ROLE {user} CONNECTION LIMIT 1")
    else:
        server.run(f"ALTER USER '{user}'@'%' WITH MAX_USER_CONNECTIONS 1")
    first, second = (
        server.open(user=user, password="s3cret", query=f"table={table}") for _ in range(2)
    )
    first.load("k")
    with pytest.raises(Unavailable, match="no connection left"):
        second.load("k")
    first.close()

    def is_served() -> bool:  # a server needs a moment to see that somebody has left
        try:
            return second.load("k").version is None
        except Unavailable:
            return False

    until(is_served)


def test_killed_in_the_middle_of_a_write(server: Server) -> None:
    """A connection that is ended by an administrator during a write leaves it unknown."""
    table = server.new_table()
    store = server.open(query=f"table={table}")
    version = made(store.swap("k", None, Record(1)))
    with ThreadPoolExecutor(1) as pool, server.transaction() as other:
        other.execute(text(f"SELECT * FROM {table} FOR UPDATE"))
        swapping = pool.submit(store.swap, "k", version, Record(2))
        _kill_who_writes(server)
        with pytest.raises(OutcomeUnknown) as caught:
            swapping.result(10)
        assert caught.value.__cause__ is not None
    assert store.load("k").record.fence == 1


def _kill_who_writes(server: Server) -> None:
    waiting = _until_it_waits(server)
    server.run(
        f"SELECT pg_terminate_backend({waiting})" if server.is_postgres else f"KILL {waiting}"
    )


def _until_it_waits(server: Server) -> int:
    """The process id at the server of the update that waits for a row."""
    ask = (
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE :what"
        if server.is_postgres
        else "SELECT id FROM information_schema.processlist WHERE info LIKE :what "
        "AND id <> CONNECTION_ID()"
    )
    for _ in range(500):
        rows = server.run(ask, what="%UPDATE %t%")  # the table's, or that of its trigger
        for (number,) in rows:
            return int(number)
        time.sleep(0.01)
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("diagnosis", [POSTGRES, MYSQL])
def test_bare_network_errors(diagnosis: object) -> None:
    """Errors that the driver did not wrap mean what a broken connection means."""
    assert isinstance(diagnosis, type(POSTGRES))
    for exc in (ConnectionResetError("gone"), EOFError("gone"), TimeoutError("gone")):
        assert type(trouble(exc, diagnosis, "connecting", "here")[0]) is Unavailable
        assert type(trouble(exc, diagnosis, "reading", "here")[0]) is Broken
        assert type(trouble(exc, diagnosis, "writing", "here")[0]) is OutcomeUnknown
