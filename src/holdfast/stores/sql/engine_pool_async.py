"""Connections of an application's SQLAlchemy engine.

Each statement borrows a connection and runs through SQLAlchemy, so that the application's pool,
settings and listeners see it. Only our own statements run in autocommit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from sqlalchemy import TextClause, text

from holdfast.runtime.flavour import ASYNC
from holdfast.stores.sql.connections_async import PooledConnection
from holdfast.stores.sql.protocol import Answer, Query

if ASYNC:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
else:
    from sqlalchemy import Connection as AsyncConnection
    from sqlalchemy import Engine as AsyncEngine


class EngineConnection(PooledConnection):
    """A connection that the application's pool has lent."""

    def __init__(self, lent: AsyncConnection, driver: Any) -> None:
        self.lent = lent
        self.driver = driver

    async def ask(self, query: Query) -> Answer:
        result = await self.lent.execute(_text(query.sql), query.values)
        if result.returns_rows:
            return Answer(result.all())
        return Answer((), result.rowcount, getattr(result, "lastrowid", None) or 0)

    async def drop(self) -> None:
        """Close it, and let the pool open another one in its place."""
        with suppress(Exception):
            await self.lent.invalidate()
            await self.lent.close()

    if not ASYNC:

        def terminate(self) -> None:
            """Close it without waiting for anything."""
            self.drop()


class EnginePool:
    """The engine of an application, with the methods of `OwnedPool`. It is never closed here."""

    def __init__(self, engine: AsyncEngine, within: Callable[..., Awaitable[Any]]) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._within = within

    async def idle(self) -> None:
        """The application's pool knows which are."""

    async def acquire(self, ends_at: float) -> EngineConnection:
        """Returns a connection that nobody else uses."""
        lent = await self._within(ends_at, self._connect, lambda late: late.close())
        if ASYNC:
            return EngineConnection(lent, (await lent.get_raw_connection()).driver_connection)
        else:
            return EngineConnection(lent, lent.connection.driver_connection)

    async def release(self, connection: EngineConnection) -> None:
        """Give a connection back that is in good order. Never raises."""
        try:
            await connection.lent.close()
        except Exception:
            await connection.drop()

    async def discard(self, connection: EngineConnection, *, broken: bool = False) -> None:
        """Close a connection of which nobody knows what state it is in, or that broke."""
        await connection.drop()

    async def _connect(self) -> AsyncConnection:
        return await self._engine.connect()

    async def open_apart(self, ends_at: float) -> EngineConnection:
        """Returns a connection that the pool forgets."""
        connection = await self.acquire(ends_at)
        if not ASYNC:
            connection.lent.detach()
        return connection

    async def close(self) -> None:
        """The application does that."""

    if ASYNC:

        def hang_up(self) -> None:
            """The application does that."""

    def abandon(self) -> Any:
        """Returns what a forked child must keep and leave alone, because it is its parent's."""
        return self._engine.sync_engine.pool if ASYNC else self._engine.pool


@lru_cache(128)
def _text(sql: str) -> TextClause:
    return text(sql)
