"""A server with what the tests need to say to it beside the store under test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL

ENGINES: dict[str, type[PostgreSQL] | type[MariaDB]] = {"postgresql": PostgreSQL, "mysql": MariaDB}
DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}


class Server:
    """One server of a kind."""

    def __init__(self, kind: str, engine: PostgreSQL | MariaDB) -> None:
        self.kind = kind
        self.engine = engine
        self.root = create_engine(self.driver_url(), poolclass=NullPool)
        self._opened: list[SQLStore] = []

    @property
    def is_postgres(self) -> bool:
        """Whether this is PostgreSQL."""
        return self.kind == "postgresql"

    def url(self, **parts: str) -> str:
        """The address of a store."""
        return self.engine.url(**parts)

    def driver_url(self, **parts: str) -> str:
        """The address for SQLAlchemy."""
        return self.engine.url(DRIVERS[self.kind], **parts)

    def open(self, **parts: str) -> SQLStore:
        """A store, closed when the test ends."""
        store = open_store(self.url(**parts))
        assert isinstance(store, SQLStore)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close the stores of this test."""
        for store in self._opened:
            store.close()

    def run(self, sql: str, **values: Any) -> list[Any]:
        """Say something as the administrator."""
        with self.root.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            result = connection.execute(text(sql), values)
            return list(result) if result.returns_rows else []

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction of somebody else's, rolled back at the end."""
        with self.root.connect() as connection:
            yield connection
            connection.rollback()

    def new_user(self, *grants: str) -> str:
        """A user with the password `s3cret` and these rights."""
        name = f"u{uuid4().hex[:10]}"
        if self.is_postgres:
            self.run(f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
        else:
            self.run(f"CREATE USER '{name}'@'%' IDENTIFIED BY 's3cret'")
        who = name if self.is_postgres else f"'{name}'@'%'"
        for grant in grants:
            self.run(f"GRANT {grant} TO {who}")
        return name

    def new_table(self) -> str:
        """A name that no table has."""
        return f"t{uuid4().hex[:10]}"

    def quote(self, name: str) -> str:
        """A column's name that may be a keyword."""
        return f'"{name}"' if self.is_postgres else f"`{name}`"

    def pool(self, **options: Any) -> Engine:
        """An application's engine."""
        return create_engine(self.driver_url(), **options)
