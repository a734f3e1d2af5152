"""PostgreSQL and MariaDB as stores under test."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from holdfast.testing.conformance import Target
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.shared import shared


class SQLTarget(Target):
    """A table of a server that all tests share; each test has keys of its own."""

    ttl = 1.4

    def __init__(self, url: str, driver_url: str) -> None:
        self.url = url
        self._driver_url = driver_url

    def open(self) -> Store:
        return open_store(self.url)

    def corrupt(self, key: str) -> None:
        quote = '"' if self._driver_url.startswith("postgresql") else "`"
        damage = f"UPDATE holdfast_locks SET record = :junk WHERE {quote}key{quote} = :key"
        junk = '{"v": 1, "fence": "no"}'
        with create_engine(self._driver_url, poolclass=NullPool).begin() as connection:
            connection.execute(text(damage), {"junk": junk, "key": key})


def postgres_target(folder: Path) -> SQLTarget:
    """PostgreSQL."""
    server = shared(PostgreSQL)
    return SQLTarget(server.url(), server.url("postgresql+psycopg"))


def mysql_target(folder: Path) -> SQLTarget:
    """MariaDB, which the URL calls mysql."""
    server = shared(MariaDB)
    return SQLTarget(server.url(), server.url("mysql+pymysql"))
