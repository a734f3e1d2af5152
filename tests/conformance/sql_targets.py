"""PostgreSQL and MariaDB as stores under test."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy import text as sql
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

    def overwrite(self, key: str, text: str) -> None:
        quote = '"' if self._driver_url.startswith("postgresql") else "`"
        update = f"UPDATE holdfast_locks SET record = :record WHERE {quote}key{quote} = :key"
        with create_engine(self._driver_url, poolclass=NullPool).begin() as connection:
            connection.execute(sql(update), {"record": text, "key": key})


def postgres_target(folder: Path) -> SQLTarget:
    """PostgreSQL."""
    server = shared(PostgreSQL)
    return SQLTarget(server.url(), server.url("postgresql+psycopg"))


def mysql_target(folder: Path) -> SQLTarget:
    """MariaDB, which the URL calls mysql."""
    server = shared(MariaDB)
    return SQLTarget(server.url(), server.url("mysql+pymysql"))
