"""The tables of `resource_lock`, and how one client at a time is let into them.

A client grants itself a lock by a SELECT and then an INSERT, so no other client may do the same in
between. How that is prevented depends on the database:

  MySQL       A client with the original locks all three tables, which waits for our transaction
              and makes ours wait. Our own clients lock the row of the resource.
  PostgreSQL  A client with the original locks nothing, but its SELECT holds ACCESS SHARE until it
              commits. So our ACCESS EXCLUSIVE waits for it, and makes its SELECT wait.
  SQLite      A client with the original locks nothing between its SELECT and its INSERT. There is
              one writer at a time, so a trigger can refuse an INSERT that comes too late.

The original tables have no expiry. Ours is in a table beside them, which the original never reads.
It also has the lock's time of creation, because SQLite uses IDs again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    text,
)
from sqlalchemy import exc as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.schema import CreateTable

from holdfast.dropin.resource_lock.models import LockException
from holdfast.stores.sql.connect import DRIVERS

METADATA = MetaData()

CLIENT = Table(
    "client",
    METADATA,
    Column("client_id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
)
RESOURCE = Table(
    "resource",
    METADATA,
    Column("resource_id", Integer, primary_key=True),
    Column("uri", String(512), nullable=False, unique=True),
)
LOCK = Table(
    "resource_lock",
    METADATA,
    Column("resource_lock_id", Integer, primary_key=True),
    Column("lock_type", String(5), nullable=False),
    Column("created", DateTime, nullable=False),
    Column("client_id", Integer, ForeignKey("client.client_id")),
    Column("resource_id", Integer, ForeignKey("resource.resource_id")),
)
EXPIRY = Table(
    "holdfast_resource_expiry",
    METADATA,
    Column("resource_lock_id", Integer, primary_key=True, autoincrement=False),
    Column("created", DateTime, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)

# Microseconds since 1970 by the database's own clock.
CLOCKS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
}
# On MySQL in the order in which an old client locks the tables. In another order the two could wait
# for each other, and the server would make one of them fail, perhaps the old one.
EXCLUDE = {
    "sqlite": ["BEGIN IMMEDIATE"],
    "postgresql": ["LOCK TABLE resource_lock IN ACCESS EXCLUSIVE MODE"],
    "mysql": [
        "SELECT client_id FROM client LIMIT 1",
        "SELECT resource_id FROM resource WHERE resource_id = :resource_id FOR UPDATE",
    ],
}
TRIGGER = """
CREATE TRIGGER IF NOT EXISTS resource_lock_excludes BEFORE INSERT ON resource_lock
WHEN EXISTS (
    SELECT 1 FROM resource_lock AS held WHERE held.resource_id = NEW.resource_id
    AND (held.lock_type = 'write' OR NEW.lock_type = 'write')
)
BEGIN SELECT RAISE(ABORT, 'the resource is locked'); END
"""
# An old client on MySQL may keep the tables locked for as long as it works.
LONGEST_TABLE_WAIT_S = 10
CREATE_TRIES = 20


def open_engine(url: str, recycle_s: int) -> Engine:
    """Returns a new engine for one locker."""
    address = _with_driver(make_url(url))
    family = address.get_backend_name()
    options: dict[str, Any] = {} if family == "sqlite" else {"isolation_level": "READ COMMITTED"}
    engine = create_engine(address, pool_recycle=recycle_s, hide_parameters=True, **options)
    if family == "sqlite":
        event.listen(engine, "connect", _plain_transactions)
    elif family in ("mysql", "mariadb"):
        event.listen(engine, "connect", _bounded_waits)
    return engine


def _with_driver(url: URL) -> URL:
    family = "postgresql" if url.drivername == "postgres" else url.drivername
    return url.set(drivername=f"{family}+{DRIVERS[family][0]}") if family in DRIVERS else url


def _plain_transactions(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # we send BEGIN ourselves
    connection.execute("PRAGMA busy_timeout = 10000")


def _bounded_waits(connection: Any, record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET SESSION lock_wait_timeout = {LONGEST_TABLE_WAIT_S}, "
            f"innodb_lock_wait_timeout = {LONGEST_TABLE_WAIT_S}"
        )


def family_of(engine: Engine) -> str:
    """Returns which of the three kinds of database this is."""
    return "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name


def create_tables(engine: Engine, tables: list[Table] | None = None) -> None:
    """Create the tables that are missing, even if many processes do so at once."""
    for table in tables or [CLIENT, RESOURCE, LOCK]:
        _create(engine, table)
    if tables is None and family_of(engine) == "sqlite":
        with engine.begin() as connection:
            connection.execute(text(TRIGGER))


def _create(engine: Engine, table: Table) -> None:
    for tries in range(CREATE_TRIES):
        try:
            with engine.begin() as connection:
                # This look works even while an old client keeps the tables locked.
                if not connection.dialect.has_table(connection, table.name):
                    connection.execute(CreateTable(table, if_not_exists=True))
            return
        except (sa.IntegrityError, sa.OperationalError, sa.ProgrammingError):
            if tries == CREATE_TRIES - 1:
                raise
            time.sleep(0.05)  # another process is creating the table


def exclude_others(connection: Connection, resource_id: int) -> None:
    """Keep others from reading and inserting until the transaction ends."""
    for statement in EXCLUDE[family_of(connection.engine)]:
        connection.execute(text(statement), {"resource_id": resource_id})


def clock(connection: Connection) -> int:
    """Returns the database's time."""
    return int(connection.scalar(text(f"SELECT {CLOCKS[family_of(connection.engine)]}")))


def was_rolled_back(exc: sa.DBAPIError) -> bool:
    """Whether the database rolled this back in favour of another transaction, or because another
    process is creating a table (1684, on MariaDB)."""
    code = (exc.orig.args or (None,))[0]  # type: ignore[union-attr]
    return getattr(exc.orig, "sqlstate", None) in ("40001", "40P01") or code in (1213, 1684)


@contextmanager
def reporting_locked_tables() -> Iterator[None]:
    """Turn a wait that took too long into a `LockException`: another client keeps the tables
    locked."""
    try:
        yield
    except sa.DBAPIError as exc:
        if not _waited_too_long(exc):
            raise
        raise LockException(
            "The tables are locked by another client, which may use the original "
            "ResourceLocker: it leaves them locked until it unlocks"
        ) from exc


def _waited_too_long(exc: sa.DBAPIError) -> bool:
    code = (exc.orig.args or (None,))[0]  # type: ignore[union-attr]
    return code == 1205 or "database is locked" in str(exc.orig)
