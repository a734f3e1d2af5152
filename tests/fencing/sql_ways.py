"""Every kind of transaction that `admit` takes, as one small interface for the tests."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomysql
import aiosqlite
import django
import django.conf
import psycopg
import psycopg2
import psycopg2.extras
import pymysql
from psycopg.rows import dict_row
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast import fencing
from holdfast.fencing import Fence, aio
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.shared import shared

SQLITE_TIMEOUT_S = 30


class Site:
    """A database of one kind, with our table in it and one table of the application's."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "application.db"
        if kind == "sqlite":
            sqlite3.connect(self.path).close()
        with self.root() as connection:
            fencing.sql.setup(connection)
            connection.execute(text("CREATE TABLE IF NOT EXISTS written (who varchar(99))"))

    def url(self, driver: str = "") -> str:
        """The address for SQLAlchemy."""
        if self.kind == "sqlite":
            return f"sqlite+{driver or 'pysqlite'}:///{self.path}"
        if self.kind == "mysql":
            return shared(MariaDB).url(f"mysql+{driver or 'pymysql'}")
        return shared(PostgreSQL).url(f"postgresql+{driver or 'psycopg'}")

    @property
    def address(self) -> dict[str, Any]:
        """Where PyMySQL and aiomysql find the server."""
        return {"host": "127.0.0.1", "port": shared(MariaDB).port, "user": "root"}

    @property
    def patience(self) -> dict[str, Any]:
        """What a driver is told so that it waits for others."""
        if self.kind != "sqlite":
            return {}
        return {"timeout": SQLITE_TIMEOUT_S, "check_same_thread": False}

    @contextmanager
    def root(self) -> Iterator[Any]:
        """A transaction for what a test itself says."""
        engine = create_engine(self.url(), poolclass=NullPool)
        with engine.begin() as connection:
            yield connection

    def ask(self, sql: str, **values: Any) -> list[Any]:
        """Returns the rows of a query."""
        with self.root() as connection:
            return list(connection.execute(text(sql), values))

    def ask_none(self, sql: str) -> None:
        """Execute something that returns no rows."""
        with self.root() as connection:
            connection.execute(text(sql))

    def written(self, who: str) -> bool:
        """Whether a row of this writer is there."""
        return bool(self.ask("SELECT 1 FROM written WHERE who = :who", who=who))

    def remembered(self, key: str) -> int | None:
        """What the gate remembers."""
        rows = self.ask("SELECT fence FROM holdfast_fences WHERE lock_key = :key", key=key)
        return rows[0][0] if rows else None


Open = Callable[[Site], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Way:
    """One kind of connection. Blocking ones are used on the loop: these tests do nothing else."""

    name: str
    kind: str
    awaited: bool
    transaction: Open  # commits at the end, rolls back after an error
    autocommitting: Open | None  # the same connection without a transaction

    async def admit(self, tx: Any, fence: Any, **options: Any) -> None:
        """Admit by the face that fits."""
        if self.awaited:
            await aio.sql.admit(tx, fence, **options)
        else:
            fencing.sql.admit(tx, fence, **options)

    async def write(self, tx: Any, who: str) -> None:
        """Insert a row."""
        statement = f"INSERT INTO written (who) VALUES ('{who}')"
        if isinstance(tx, (AsyncConnection, AsyncSession)):
            await tx.execute(text(statement))
        elif self.awaited:
            await _awaited_execute(tx, statement)
        elif self.name.startswith("sqlalchemy"):
            tx.execute(text(statement))
        elif hasattr(tx, "execute"):
            tx.execute(statement)
        else:
            with tx.cursor() as cursor:
                cursor.execute(statement)

    async def attempt(self, site: Site, fence: Fence, who: str) -> None:
        """A transaction with a check and a write."""
        async with self.transaction(site) as tx:
            await self.admit(tx, fence)
            await self.write(tx, who)


async def _awaited_execute(tx: Any, statement: str) -> None:
    if hasattr(tx, "execute"):
        await tx.execute(statement)
    else:
        async with tx.cursor() as cursor:
            await cursor.execute(statement)


# --- SQLAlchemy -----------------------------------------------------------------------------------


@asynccontextmanager
async def _connection(site: Site, **options: Any) -> AsyncIterator[Any]:
    with create_engine(site.url(), poolclass=NullPool, **options).begin() as tx:
        yield tx


@asynccontextmanager
async def _unbegun(site: Site) -> AsyncIterator[Any]:
    with create_engine(site.url(), poolclass=NullPool).connect() as tx:
        yield tx
        tx.commit()


@asynccontextmanager
async def _session(site: Site, **options: Any) -> AsyncIterator[Any]:
    engine = create_engine(site.url(), poolclass=NullPool, **options)
    with Session(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def _begin_immediate(site: Site) -> AsyncIterator[Any]:
    """SQLAlchemy's own recipe for SQLite: the driver begins nothing, an event does."""
    engine = create_engine(site.url(), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begins(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.begin() as tx:
        yield tx


def _with_options(open_: Any, **options: Any) -> Open:
    return lambda site: open_(site, **options)


_ASYNC_DRIVERS = {"postgresql": "psycopg_async", "mysql": "aiomysql", "sqlite": "aiosqlite"}


@asynccontextmanager
async def _async_connection(site: Site, **options: Any) -> AsyncIterator[Any]:
    engine = create_async_engine(site.url(_ASYNC_DRIVERS[site.kind]), poolclass=NullPool, **options)
    async with engine.begin() as tx:
        yield tx
    await engine.dispose()


@asynccontextmanager
async def _async_session(site: Site, **options: Any) -> AsyncIterator[Any]:
    engine = create_async_engine(site.url(_ASYNC_DRIVERS[site.kind]), poolclass=NullPool, **options)
    async with AsyncSession(engine) as session, session.begin():
        yield session
    await engine.dispose()


# --- drivers --------------------------------------------------------------------------------------


def _pg_url() -> str:
    return shared(PostgreSQL).url()


@asynccontextmanager
async def _psycopg(site: Site, **options: Any) -> AsyncIterator[Any]:
    with psycopg.connect(_pg_url(), row_factory=dict_row, **options) as connection:
        yield connection


@asynccontextmanager
async def _psycopg_block(site: Site) -> AsyncIterator[Any]:
    with psycopg.connect(_pg_url(), autocommit=True) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def _psycopg_cursor(site: Site) -> AsyncIterator[Any]:
    with psycopg.connect(_pg_url()) as connection, connection.cursor() as cursor:
        yield cursor


@asynccontextmanager
async def _psycopg_async(site: Site, **options: Any) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(_pg_url(), **options) as connection:
        yield connection


@asynccontextmanager
async def _psycopg_async_cursor(site: Site) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(_pg_url()) as connection:
        async with connection.cursor() as cursor:
            yield cursor


@asynccontextmanager
async def _psycopg2(site: Site, *, autocommit: bool = False) -> AsyncIterator[Any]:
    factory = psycopg2.extras.RealDictCursor
    connection = psycopg2.connect(_pg_url(), cursor_factory=factory)
    connection.autocommit = autocommit
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def _sqlite3(site: Site, **options: Any) -> AsyncIterator[Any]:
    connection = sqlite3.connect(site.path, timeout=SQLITE_TIMEOUT_S, **options)
    connection.row_factory = sqlite3.Row
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def _sqlite3_cursor(site: Site) -> AsyncIterator[Any]:
    async with _sqlite3(site) as connection:
        yield connection.cursor()


@asynccontextmanager
async def _sqlite3_by_hand(site: Site) -> AsyncIterator[Any]:
    async with _sqlite3(site, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


@asynccontextmanager
async def _aiosqlite(site: Site, **options: Any) -> AsyncIterator[Any]:
    async with aiosqlite.connect(site.path, timeout=SQLITE_TIMEOUT_S, **options) as connection:
        yield connection
        await connection.commit()


@asynccontextmanager
async def _pymysql(site: Site, **options: Any) -> AsyncIterator[Any]:
    cursors = pymysql.cursors.DictCursor
    with pymysql.connect(
        database="holdfast", **site.address, cursorclass=cursors, **options
    ) as connection:
        yield connection
        connection.commit()


@asynccontextmanager
async def _pymysql_begun(site: Site) -> AsyncIterator[Any]:
    async with _pymysql(site, autocommit=True) as connection:
        connection.begin()
        yield connection


@asynccontextmanager
async def _pymysql_cursor(site: Site) -> AsyncIterator[Any]:
    async with _pymysql(site) as connection:
        with connection.cursor() as cursor:
            yield cursor


@asynccontextmanager
async def _aiomysql(site: Site, **options: Any) -> AsyncIterator[Any]:
    connection = await aiomysql.connect(db="holdfast", **site.address, **options)
    try:
        yield connection
        await connection.commit()
    finally:
        connection.close()


@asynccontextmanager
async def _aiomysql_cursor(site: Site) -> AsyncIterator[Any]:
    async with _aiomysql(site) as connection, connection.cursor() as cursor:
        yield cursor


# --- Django ---------------------------------------------------------------------------------------


def _django(site: Site) -> str:
    """Tell Django of the database. Returns the alias."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # these tests do nothing else on the loop
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import connections

    engine = f"django.db.backends.{'sqlite3' if site.kind == 'sqlite' else site.kind}"
    known: dict[str, Any] = {"ENGINE": engine}
    if site.kind == "sqlite":
        known["NAME"] = str(site.path)
    else:
        known |= {"NAME": "postgres", "USER": "postgres", "HOST": "127.0.0.1"}
        known["PORT"] = shared(PostgreSQL).port
    databases = connections.settings
    alias = f"database{len(databases)}"
    databases[alias] = known
    connections.configure_settings(databases)
    return alias


@asynccontextmanager
async def _django_atomic(site: Site) -> AsyncIterator[Any]:
    from django.db import connections, transaction

    alias = _django(site)
    try:
        with transaction.atomic(using=alias):
            yield connections[alias]
    finally:
        connections[alias].close()


@asynccontextmanager
async def _django_cursor(site: Site) -> AsyncIterator[Any]:
    async with _django_atomic(site) as connection:
        with connection.cursor() as cursor:
            yield cursor


@asynccontextmanager
async def _django_plain(site: Site) -> AsyncIterator[Any]:
    from django.db import connections

    alias = _django(site)
    yield connections[alias]
    connections[alias].close()


AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}
KINDS = ("postgresql", "mysql", "sqlite")

WAYS = [
    *(Way(f"sqlalchemy-{kind}", kind, False, _connection, _with_options(_connection, **AUTOCOMMIT))
      for kind in KINDS),
    Way("sqlalchemy-unbegun", "postgresql", False, _unbegun, None),
    *(Way(f"sqlalchemy-session-{kind}", kind, False, _session,
          _with_options(_session, **AUTOCOMMIT)) for kind in KINDS),
    Way("sqlalchemy-begin-immediate", "sqlite", False, _begin_immediate, None),
    *(Way(f"sqlalchemy-async-{kind}", kind, True, _async_connection,
          _with_options(_async_connection, **AUTOCOMMIT)) for kind in KINDS),
    *(Way(f"sqlalchemy-async-session-{kind}", kind, True, _async_session,
          _with_options(_async_session, **AUTOCOMMIT)) for kind in KINDS),
    Way("psycopg", "postgresql", False, _psycopg, _with_options(_psycopg, autocommit=True)),
    Way("psycopg-block", "postgresql", False, _psycopg_block, None),
    Way("psycopg-cursor", "postgresql", False, _psycopg_cursor, None),
    Way("psycopg-async", "postgresql", True, _psycopg_async,
        _with_options(_psycopg_async, autocommit=True)),
    Way("psycopg-async-cursor", "postgresql", True, _psycopg_async_cursor, None),
    Way("psycopg2", "postgresql", False, _psycopg2, _with_options(_psycopg2, autocommit=True)),
    Way("sqlite3", "sqlite", False, _sqlite3, _with_options(_sqlite3, isolation_level=None)),
    Way("sqlite3-cursor", "sqlite", False, _sqlite3_cursor, None),
    Way("sqlite3-by-hand", "sqlite", False, _sqlite3_by_hand, None),
    Way("aiosqlite", "sqlite", True, _aiosqlite, _with_options(_aiosqlite, isolation_level=None)),
    Way("pymysql", "mysql", False, _pymysql, _with_options(_pymysql, autocommit=True)),
    Way("pymysql-begun", "mysql", False, _pymysql_begun, None),
    Way("pymysql-cursor", "mysql", False, _pymysql_cursor, None),
    Way("aiomysql", "mysql", True, _aiomysql, _with_options(_aiomysql, autocommit=True)),
    Way("aiomysql-cursor", "mysql", True, _aiomysql_cursor, None),
    Way("django-postgresql", "postgresql", False, _django_atomic, _django_plain),
    Way("django-sqlite", "sqlite", False, _django_atomic, _django_plain),
    Way("django-cursor", "sqlite", False, _django_cursor, None),
]  # fmt: skip
