# Made from engine_pool_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Connections of an application's SQLAlchemy engine.

Each statement borrows a connection and runs through SQLAlchemy, so that the application's pool,
settings and listeners see it. Only our own statements run in autocommit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection as Connection
from sqlalchemy import Engine as Engine
from sqlalchemy import TextClause, text

from holdfast.stores.sql.connections import PooledConnection
from holdfast.stores.sql.protocol import Answer, Query


class EngineConnection(PooledConnection):
    """A connection that the application's pool has lent."""

    def __init__(self, lent: Connection, driver: Any) -> None:
        self.lent = lent
        self.driver = driver

    def ask(self, query: Query) -> Answer:
        result = self.lent.execute(_text(query.sql), query.values)
        if result.returns_rows:
            return Answer(result.all())
        return Answer((), result.rowcount, getattr(result, "lastrowid", None) or 0)

    def drop(self) -> None:
        """Close it, and let the pool open another one in its place."""
        with suppress(Exception):
            self.lent.invalidate()
            self.lent.close()

    def terminate(self) -> None:
        """Close it without waiting for anything."""
        self.drop()


class EnginePool:
    """The engine of an application, with the methods of `OwnedPool`. It is never closed here."""

    def __init__(self, engine: Engine, within: Callable[..., Any]) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._within = within

    def idle(self) -> None:
        """The application's pool knows which are."""

    def acquire(self, ends_at: float) -> EngineConnection:
        """Returns a connection that nobody else uses."""
        lent = self._within(ends_at, self._connect, lambda late: late.close())
        return EngineConnection(lent, lent.connection.driver_connection)

    def release(self, connection: EngineConnection) -> None:
        """Give a connection back that is in good order. Never raises."""
        try:
            connection.lent.close()
        except Exception:
            connection.drop()

    def discard(self, connection: EngineConnection, *, broken: bool = False) -> None:
        """Close a connection of which nobody knows what state it is in, or that broke."""
        connection.drop()

    def _connect(self) -> Connection:
        return self._engine.connect()

    def open_apart(self, ends_at: float) -> EngineConnection:
        """Returns a connection that the pool forgets."""
        connection = self.acquire(ends_at)
        connection.lent.detach()
        return connection

    def close(self) -> None:
        """The application does that."""

    def abandon(self) -> Any:
        """Returns what a forked child must keep and leave alone, because it is its parent's."""
        return self._engine.pool


@lru_cache(128)
def _text(sql: str) -> TextClause:
    return text(sql)
