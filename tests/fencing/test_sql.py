"""A gate in a table: on every kind of connection, and what it refuses."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    text,
)
from sqlalchemy import update as update_of
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import holdfast
from holdfast import KeyMismatch, LeaseLost, StaleFence, UsageError, fencing
from holdfast.fencing import Fence, aio
from tests.engines.mariadb import MariaDB
from tests.engines.shared import shared
from tests.fencing.sql_ways import KINDS, WAYS, Site, Way
from tests.helpers import memory_locks, unique


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def way(request: pytest.FixtureRequest) -> Way:
    """Every kind of connection."""
    found: Way = request.param
    return found


@pytest.fixture
def site(way: Way, tmp_path: Path) -> Site:
    """The database for it."""
    return Site(way.kind, tmp_path)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Every kind of database."""
    return Site(request.param, tmp_path)


class Broken(Exception):
    """Something of the application's."""


async def attempt_backwards(way: Way, site: Site, fence: Fence, who: str) -> None:
    """A transaction that writes first and is checked afterwards."""
    async with way.transaction(site) as tx:
        await way.write(tx, who)
        await way.admit(tx, fence)


async def attempt_in_vain(way: Way, site: Site, fence: Fence) -> None:
    """A transaction that is rolled back."""
    async with way.transaction(site) as tx:
        await way.admit(tx, fence)
        await way.write(tx, unique())
        raise Broken


def test_every_kind_of_connection(way: Way, site: Site) -> None:
    """The same fence may come again, and a larger one closes the gate for it. Nothing of a stale
    transaction stays, wherever in it the check was. What is rolled back is forgotten."""
    key, first, later, stale = (unique() for _ in range(4))

    async def story() -> None:
        with pytest.raises(Broken):
            await attempt_in_vain(way, site, Fence(key, 9))
        await way.attempt(site, Fence(key, 5), first)
        await way.attempt(site, Fence(key, 5), unique())
        await way.attempt(site, Fence(key, 2**62), later)
        with pytest.raises(StaleFence, match=key) as refused:
            await way.attempt(site, Fence(key, 6), stale)
        error = refused.value
        assert (error.key, error.fence, error.remembered) == (key, 6, 2**62)
        with pytest.raises(StaleFence):
            await attempt_backwards(way, site, Fence(key, 6), stale)

    asyncio.run(story())
    assert [site.written(who) for who in (first, later, stale)] == [True, True, False]
    assert site.remembered(key) == 2**62


AUTOCOMMITTING = [way for way in WAYS if way.autocommitting is not None]


@pytest.mark.parametrize("committing", AUTOCOMMITTING, ids=lambda way: way.name)
def test_autocommit_is_refused(committing: Way, tmp_path: Path) -> None:
    """A check that is committed by itself protects nothing, and nothing is written."""
    site, key = Site(committing.kind, tmp_path), unique()
    assert committing.autocommitting is not None
    opened = committing.autocommitting(site)

    async def story() -> None:
        async with opened as tx:
            with pytest.raises(UsageError, match="No transaction is open"):
                await committing.admit(tx, Fence(key, 1))

    asyncio.run(story())
    assert site.remembered(key) is None


def test_keys_are_exact(place: Site) -> None:
    """`a`, `A`, `a ` and two spellings of é are different gates."""
    start = unique()
    keys = [start + end for end in ("a", "A", "a ", "é", "e\N{COMBINING ACUTE ACCENT}", "%s:x")]
    for number, key in enumerate(keys, start=1):
        with place.root() as tx:
            fencing.sql.admit(tx, Fence(key, number))
    assert [place.remembered(key) for key in keys] == [1, 2, 3, 4, 5, 6]


# --- leases -----------------------------------------------------------------------------------


def test_a_lease_brings_its_key_and_fence(place: Site) -> None:
    """Wherever the lock is kept, here in memory."""
    with memory_locks() as locks, locks.acquire(unique()) as lease:
        with place.root() as tx:
            fencing.sql.admit(tx, lease)
        assert place.remembered(lease.key) == lease.fence


def test_a_lease_of_asyncio_too(place: Site) -> None:
    """Each face takes the leases of both."""

    async def story() -> tuple[str, int]:
        async with holdfast.aio.connect(f"memory://{unique()}") as locks:
            async with locks.acquire(unique()) as lease:
                with place.root() as tx:
                    fencing.sql.admit(tx, lease)
                return lease.key, lease.fence

    key, fence = asyncio.run(story())
    assert place.remembered(key) == fence


@pytest.mark.parametrize("end", ["released", "evicted"])
def test_a_lease_that_is_over(end: str, place: Site) -> None:
    """It is refused before the database is asked."""
    with memory_locks() as locks:
        lease = locks.acquire(unique())
        if end == "released":
            lease.release()
        else:
            locks.evict(lease.key)
            with pytest.raises(LeaseLost):
                lease.renew()
        with place.root() as tx, pytest.raises(LeaseLost):
            fencing.sql.admit(tx, lease)
        assert place.remembered(lease.key) is None


def test_a_lease_of_another_key(place: Site) -> None:
    """Whoever names the key of the data is told when the lease is on another one."""
    with memory_locks() as locks, locks.acquire(unique()) as lease:
        with place.root() as tx, pytest.raises(KeyMismatch, match="guarded by 'orders'"):
            fencing.sql.admit(tx, lease, key="orders")
        assert place.remembered(lease.key) is None


def test_shared_leases_and_others_that_cannot_be_admitted(place: Site) -> None:
    """Their fences do not tell who may write."""
    with memory_locks() as locks, place.root() as tx:
        with locks.acquire("s", mode="shared") as lease:
            with pytest.raises(UsageError, match="is shared"):
                fencing.sql.admit(tx, lease)
        with locks.acquire_all(["a", "b"]) as leases:
            with pytest.raises(UsageError, match="one by one"):
                fencing.sql.admit(tx, leases)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not int"):
            fencing.sql.admit(tx, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "fence"), [("", 1), ("k", -1), ("k", 2**63), ("k", True)])
def test_fences_that_cannot_be(key: str, fence: Any) -> None:
    """A fence from outside is checked when it is made."""
    with pytest.raises(UsageError):
        Fence(key, fence)


# --- tables -----------------------------------------------------------------------------------


def test_setup_may_be_repeated_and_another_table_named(place: Site) -> None:
    """The second call finds the table; `ddl` shows what the first one ran."""
    name = f"gate_{unique()[:12]}"
    kind = "mariadb" if place.kind == "mysql" else place.kind
    for _ in range(2):
        with place.root() as tx:
            fencing.sql.setup(tx, table=name)
    with place.root() as tx:
        fencing.sql.admit(tx, Fence("k", 1), table=name)
    with pytest.raises(StaleFence), place.root() as tx:
        fencing.sql.admit(tx, Fence("k", 0), table=name)
    other = f"gate_{unique()[:12]}"
    place_ddl = fencing.sql.ddl(kind, table=other)
    with place.root() as tx:
        tx.execute(text(place_ddl))
    with place.root() as tx:
        fencing.sql.setup(tx, table=other)  # it is ours


def test_a_missing_table(place: Site) -> None:
    """The error says what to run."""
    with pytest.raises(holdfast.Misconfigured, match=r"setup\(connection\)(.|\n)*CREATE TABLE"):
        with place.root() as tx:
            fencing.sql.admit(tx, Fence("k", 1), table="nowhere")


FOREIGN = [
    "(lock_key varchar(99) PRIMARY KEY, amount int)",
    "(id int PRIMARY KEY)",
    "(lock_key varchar(99) PRIMARY KEY, fence bigint, owner varchar(9) NOT NULL)",
]


@pytest.mark.parametrize("columns", FOREIGN)
def test_a_table_of_somebody_else(columns: str, place: Site) -> None:
    """It is left alone, by `setup` and by `admit`."""
    name = f"theirs_{unique()[:12]}"
    with place.root() as tx:
        tx.execute(text(f"CREATE TABLE {name} {columns}"))
    with pytest.raises(holdfast.ForeignStore, match="not made by Holdfast"), place.root() as tx:
        fencing.sql.setup(tx, table=name)
    with pytest.raises(holdfast.ForeignStore, match="not made by Holdfast"), place.root() as tx:
        fencing.sql.admit(tx, Fence("k", 1), table=name)
    assert place.ask(f"SELECT count(*) FROM {name}") == [(0,)]


@pytest.mark.parametrize("name", ["", "a b", "a;drop", "a.b.c", 'x"y', None])
def test_names_that_are_none(name: Any, place: Site) -> None:
    """Nothing but a name gets into a statement."""
    with place.root() as tx, pytest.raises(holdfast.BadOption, match="table is a name"):
        fencing.sql.admit(tx, Fence("k", 1), table=name)


def test_a_transaction_that_may_not_write(tmp_path: Path) -> None:
    """Said as such, on each database."""
    pg = Site("postgresql", tmp_path)
    with pg.root() as tx:
        tx.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(holdfast.StoreReadOnly):
            fencing.sql.admit(tx, Fence("k", 1))
    mysql = Site("mysql", tmp_path)
    with mysql.root() as tx:
        tx.execute(text("COMMIT"))
        tx.execute(text("START TRANSACTION READ ONLY"))
        with pytest.raises(holdfast.StoreReadOnly):
            fencing.sql.admit(tx, Fence("k", 1))
    Site("sqlite", tmp_path)
    connection = sqlite3.connect(f"file:{tmp_path}/application.db?mode=ro", uri=True)
    with pytest.raises(holdfast.StoreReadOnly):
        fencing.sql.admit(connection, Fence("k", 1))
    connection.close()


# --- what is no transaction -------------------------------------------------------------------


def test_things_that_are_no_connection(tmp_path: Path) -> None:
    """Each with a word on what to give instead."""
    site = Site("sqlite", tmp_path)
    engine = create_engine(site.url(), poolclass=NullPool)
    with pytest.raises(UsageError, match=r"with engine\.begin"):
        fencing.sql.admit(engine, Fence("k", 1))
    with pytest.raises(holdfast.Unsupported, match="not a connection that is known"):
        fencing.sql.admit(object(), Fence("k", 1))
    with pytest.raises(holdfast.Unsupported, match="no gate for 'oracle'"):
        fencing.sql.ddl("oracle")


def test_the_other_face(tmp_path: Path) -> None:
    """A connection for asyncio given to the blocking face, and the other way round."""
    site = Site("sqlite", tmp_path)

    async def story() -> None:
        engine = create_async_engine(site.url("aiosqlite"), poolclass=NullPool)
        with pytest.raises(UsageError, match="async with engine"):
            await aio.sql.admit(engine, Fence("k", 1))
        async with engine.begin() as tx:
            with pytest.raises(UsageError, match="is for asyncio"):
                fencing.sql.admit(tx, Fence("k", 1))
        with site.root() as blocking, pytest.raises(UsageError, match="blocks"):
            await aio.sql.admit(blocking, Fence("k", 1))

    asyncio.run(story())


def test_an_engines_own_errors_stay_what_they_are(tmp_path: Path) -> None:
    """A transaction that is broken already is not blamed on the table."""
    site = Site("postgresql", tmp_path)
    with psycopg.connect(site.url().replace("+psycopg", "")) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            fencing.sql.admit(connection, Fence("k", 1))


# --- a column of one's own --------------------------------------------------------------------


def reports(place: Site) -> Table:
    """A table of the application's with a fence in each row."""
    table = Table(
        f"reports_{unique()[:12]}",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("body", String(99)),
        Column("fence", BigInteger),
    )
    with place.root() as tx:
        table.create(tx)
        tx.execute(table.insert().values(id=7, body="new"))
    return table


def test_a_column_of_ones_own(place: Site) -> None:
    """NULL is written over, a smaller fence too, a larger one not; and no row is told."""
    table = reports(place)

    def write(fence: int, body: str, row: int = 7) -> None:
        fresh = fencing.sql.unless_stale(table.c.fence, Fence("k", fence))
        with place.root() as tx:
            statement = update_of(table).where(table.c.id == row, fresh.condition)
            fresh.check(tx.execute(statement.values(body=body, fence=fresh.value)))

    write(5, "first")
    write(5, "first")
    write(2**62, "later")
    with pytest.raises(StaleFence, match="No row was written") as refused:
        write(6, "stale")
    assert (refused.value.fence, refused.value.remembered) == (6, None)
    with pytest.raises(StaleFence, match="no such row"):
        write(2**62, "nobody", row=8)
    assert place.ask(f"SELECT body, fence FROM {table.name}") == [("later", 2**62)]


def test_a_column_by_its_name(place: Site) -> None:
    """For SQL text, with any driver."""
    table = reports(place)
    for number, count in ((5, 1), (4, 0)):
        fresh = fencing.sql.unless_stale("fence", Fence("k", number))
        with place.root() as tx:
            done = tx.execute(
                text(f"UPDATE {table.name} SET fence = {fresh.value} WHERE {fresh.condition}")
            )
            assert done.rowcount == count
    with pytest.raises(StaleFence):
        fresh.check(0)


def test_columns_that_cannot_hold_a_fence() -> None:
    """An `integer` would overflow, a text would compare as text, and a float has too few digits."""
    kinds = (Integer, String(9), Float, Double)
    for column in (Column("a", kind) for kind in kinds):
        with pytest.raises(holdfast.BadOption, match="make it BigInteger"):
            fencing.sql.unless_stale(column, Fence("k", 1))
    for nonsense in ("a; b", 5):
        with pytest.raises(holdfast.BadOption, match="column is"):
            fencing.sql.unless_stale(nonsense, Fence("k", 1))
    with pytest.raises(UsageError, match="row count"):
        fencing.sql.unless_stale("a", Fence("k", 1)).check(None)


DJANGO_ON_MYSQL = """
import pymysql
pymysql.version_info, pymysql.__version__ = (2, 2, 7, "final", 0), "2.2.7"
pymysql.install_as_MySQLdb()  # Django asks for mysqlclient, which has to be compiled
import sys, django
from django.conf import settings
database = {"ENGINE": "django.db.backends.mysql", "NAME": "holdfast", "USER": "root",
            "HOST": "127.0.0.1", "PORT": int(sys.argv[1])}
settings.configure(DATABASES={"default": database}, USE_TZ=True)
django.setup()
from django.db import connection, transaction
from holdfast import fencing
fencing.sql.setup(connection)
for fence in (5, 5, 7, 6):
    try:
        with transaction.atomic():
            fencing.sql.admit(connection, fencing.Fence(sys.argv[2], fence))
        print("admitted", fence)
    except fencing.StaleFence as stale:
        print("refused", fence, stale.remembered)
"""


def test_django_on_mysql() -> None:
    """Its default connection, which is a proxy, in a process of its own."""
    port, key = str(shared(MariaDB).port), unique()
    ran = subprocess.run(
        [sys.executable, "-c", DJANGO_ON_MYSQL, port, key], capture_output=True, text=True
    )
    said = ran.stdout.splitlines()
    assert said == ["admitted 5", "admitted 5", "admitted 7", "refused 6 7"], ran.stderr


def test_an_answer_that_cannot_be(tmp_path: Path) -> None:
    """A trigger that changes what is remembered is noticed, and the write is not let through."""
    site, name = Site("postgresql", tmp_path), f"gate_{unique()[:12]}"
    with site.root() as tx:
        fencing.sql.setup(tx, table=name)
        tx.execute(
            text(
                f"CREATE FUNCTION zero_{name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN NEW.fence = 0; RETURN NEW; END $$"
            )
        )
        tx.execute(
            text(
                f"CREATE TRIGGER zero BEFORE INSERT OR UPDATE ON {name} "
                f"FOR EACH ROW EXECUTE FUNCTION zero_{name}()"
            )
        )
    with pytest.raises(holdfast.Misconfigured, match="answered 0"), site.root() as tx:
        fencing.sql.admit(tx, Fence("k", 5), table=name)
