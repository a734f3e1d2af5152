"""Databases for the drop-ins, each empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from holdfast.dropin.resource_lock import ResourceLocker
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.shared import shared


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, with a driver in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    return new_database(request.param)


@pytest.fixture
def mysql_database() -> str:
    """The same on MariaDB only."""
    return new_database("mysql")


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    """The same on SQLite only."""
    return f"sqlite:///{tmp_path}/locks.db"


def new_database(kind: str) -> str:
    """A new database of the shared server."""
    name = f"d{uuid4().hex[:10]}"
    server = shared(PostgreSQL) if kind == "postgresql" else shared(MariaDB)
    driver = "postgresql+psycopg" if kind == "postgresql" else "mysql+pymysql"
    root = create_engine(server.url(driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with root.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return server.url(driver, database=name)


@pytest.fixture
def locker_at() -> Iterator[Callable[[str], ResourceLocker]]:
    """Makes lockers that are closed at the end."""
    made: list[ResourceLocker] = []

    def make(url: str) -> ResourceLocker:
        made.append(ResourceLocker(url))
        return made[-1]

    yield make
    for locker in made:
        locker.close()


@pytest.fixture
def locker(database: str, locker_at: Callable[[str], ResourceLocker]) -> ResourceLocker:
    """A locker on each kind of database."""
    return locker_at(database)
