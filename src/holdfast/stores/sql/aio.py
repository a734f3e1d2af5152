"""The asyncio face of the SQL store, on an asyncio driver of its own.

Statements run on the event loop's own connections. Waiting is shared with the blocking store
beside it: one listening or polling thread rings tasks as well as threads.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Page, Version
from holdfast.core.records import Micros, Record
from holdfast.stores.async_adapters import finish, wait_for_notify
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.sql.database import Database
from holdfast.stores.sql.deadlines import cut_off, discard
from holdfast.stores.sql.dialect import Queries
from holdfast.stores.sql.ways import Loop

if TYPE_CHECKING:
    from holdfast.stores.sql.store import SQLStore

R = TypeVar("R")


class AsyncSQLStore(AsyncStore):
    """Runs the same queries on an asyncio engine."""

    of_one_loop = True

    def __init__(self, store: SQLStore, engine: AsyncEngine, *, owned: bool) -> None:
        self.facts = store.facts
        self._store = store
        self._dialect = store.dialect
        self._database = Database(
            engine.sync_engine,
            store.dialect,
            store.options,
            owned=owned,
            way=Loop(store.options.timeout_s),
        )
        self._opened = OpenConnections()
        self._owned = owned
        if owned:
            event.listen(engine.sync_engine, "connect", self._opened.add)
        # Also when nobody has closed it and it is collected, or the program ends.
        weakref.finalize(self, self._opened.hang_up)
        self._ready_lock = asyncio.Lock()

    async def load(self, key: str) -> Entry:
        return await finish(self._run(self._dialect.load_queries(key)))

    async def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        queries = self._dialect.swap_queries(key, version, record, wake)
        outcome = await finish(self._run(queries))
        self._store.ring_here(key, wake)
        return outcome

    async def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        return await finish(self._run(self._dialect.scan_queries(prefix, cursor, limit)))

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        return await wait_for_notify(self._store, key, version, token, at_most)

    async def setup(self) -> None:
        self._store.ready = False
        await finish(self._get_ready())

    async def close(self) -> None:
        await greenlet_spawn(self._database.close)
        self.hang_up()  # here: nobody may touch a loop's connections from another thread
        self._store.part_with(self)
        await asyncio.to_thread(self._store.close)

    def moved(self) -> AsyncStore:
        self.hang_up()
        self._database.let_go()
        return self._store.to_async()

    def hang_up(self) -> None:
        """Close what the event loop did not close; it may be gone by now."""
        self._database.end()
        self._opened.hang_up()

    # --- running queries --------------------------------------------------------------------

    async def _run(self, queries: Queries[R]) -> R:
        if not self._store.ready:
            await self._get_ready()
        return await greenlet_spawn(self._database.run, queries)

    async def _get_ready(self) -> None:
        async with self._ready_lock:
            if not self._store.ready:
                if not self._owned:
                    await asyncio.to_thread(self._store.check_renewals)
                await greenlet_spawn(self._database.run, self._dialect.ready_queries())
                self._store.ready = True


class OpenConnections:
    """The driver's connections that were opened on event loops, to be closed without them.

    They are kept here so that none is collected after the end of its loop: aiomysql's would then
    complain that it cannot close itself. An engine and a finalizer refer to this, so it must not
    keep the store.
    """

    def __init__(self) -> None:
        self._loops: dict[Any, asyncio.AbstractEventLoop] = {}

    def add(self, _: Any, record: Any) -> None:
        """An engine calls this for a new connection."""
        for connection in [known for known in self._loops if known.closed]:
            self._loops.pop(connection, None)
        self._loops[record.driver_connection] = asyncio.get_running_loop()

    def hang_up(self) -> None:
        """Close them all, whether their loops are still there or not."""
        while self._loops:
            connection, loop = self._loops.popitem()
            if loop.is_running() and loop is not _running_loop():
                with suppress(RuntimeError):  # it was closed just now
                    loop.call_soon_threadsafe(_end, connection)
            else:
                _end(connection)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _end(connection: Any) -> None:
    try:
        discard(connection)
    except Exception:
        with suppress(Exception):
            cut_off(connection)
