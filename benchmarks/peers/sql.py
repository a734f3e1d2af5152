"""sqlalchemy-dlock: the server's own session locks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.base import AsyncPeer, Peer
from benchmarks.sites import Place

DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
ASYNC_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+aiomysql"}


class Dlock(Peer):
    """A lock of the session, on a connection that stays open: its users' fast path."""

    name = "sqlalchemy-dlock"
    package = "sqlalchemy-dlock"
    wait_s: int | None = None

    def __init__(self, place: Place) -> None:
        self._create = import_module("sqlalchemy_dlock").create_sadlock
        url = place.url.replace(place.store, DRIVERS[place.store], 1)
        self._engine = create_engine(url, pool_size=64, isolation_level="AUTOCOMMIT")
        self._mine = threading.local()

    def lock(self, key: str) -> Any:
        return self._create(self._connection(), key, contextual_timeout=self.wait_s)

    def _connection(self) -> Any:
        if not hasattr(self._mine, "connection"):
            self._mine.connection = self._engine.connect()
        return self._mine.connection

    def close(self) -> None:
        self._engine.dispose()


class DlockMySQL(Dlock):
    """A named lock. It waits for a minute: MariaDB refuses to wait for ever."""

    stores = ("mysql",)
    modules = ("sqlalchemy_dlock", "sqlalchemy.dialects.mysql.pymysql")
    wait_s = 60


class DlockPostgreSQL(Dlock):
    """An advisory lock, which can be shared. It waits for ever, in the server: with a timeout it
    would ask once a second."""

    stores = ("postgresql",)
    modules = ("sqlalchemy_dlock", "sqlalchemy.dialects.postgresql.psycopg")
    shares = True

    def shared(self, key: str) -> Any:
        return self._create(self._connection(), key, shared=True)


class DlockAsyncio(AsyncPeer):
    """A connection from the pool for each lock: two tasks cannot share one."""

    stores = ("postgresql", "mysql")
    name = "sqlalchemy-dlock (asyncio)"
    package = "sqlalchemy-dlock"

    def __init__(self, place: Place) -> None:
        self._create = import_module("sqlalchemy_dlock").create_async_sadlock
        self._url = place.url.replace(place.store, ASYNC_DRIVERS[place.store], 1)
        self._wait_s = DlockMySQL.wait_s if place.store == "mysql" else None

    async def open(self) -> None:
        options = {"isolation_level": "AUTOCOMMIT", "pool_size": 64, "max_overflow": 0}
        self._engine = create_async_engine(self._url, **options)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        async with (
            self._engine.connect() as connection,
            self._create(connection, key, contextual_timeout=self._wait_s),
        ):
            yield

    async def close(self) -> None:
        await self._engine.dispose()
