"""The asyncio face of the SQL store, on an asyncio driver of its own.

Statements run on the event loop's own pool. Waiting is shared with the blocking store
beside it: one listening or polling thread rings tasks as well as threads.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Page, Version
from holdfast.core.records import Micros, Record
from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.sql.database import answer_of, pause_before_retry
from holdfast.stores.sql.deadlines import deadline_on, discard
from holdfast.stores.sql.dialect import Answer, Queries, Query
from holdfast.stores.sql.errors import Again, Broken, cause
from holdfast.stores.threaded import finish, wait_for_ring

if TYPE_CHECKING:
    from holdfast.stores.sql.store import SQLStore

R = TypeVar("R")


class AsyncSQLStore(AsyncStore):
    """Runs the same queries on an asyncio engine."""

    def __init__(self, store: SQLStore, engine: AsyncEngine, *, owned: bool) -> None:
        self.facts = store.facts
        self._store = store
        self._dialect = store.dialect
        self._timeout_s = store.options.timeout_s
        self._engine = engine if owned else engine.execution_options(isolation_level="AUTOCOMMIT")
        self._owned = owned
        self._closed = False
        self._ready_lock = asyncio.Lock()
        self._opened: weakref.WeakSet[Any] = weakref.WeakSet()  # the driver's connections
        if owned:
            event.listen(engine.sync_engine, "connect", self._remember)

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

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> None:
        await wait_for_ring(self._store, key, version, token, at_most)

    async def setup(self) -> None:
        self._store.ready = False
        await finish(self._get_ready())

    async def close(self) -> None:
        self._closed = True
        if self._owned:
            await self._engine.dispose()
        await asyncio.to_thread(self._store.close)

    def hang_up(self) -> None:
        """Close what the event loop did not close; it may be gone by now."""
        self._closed = True
        for connection in list(self._opened):
            with suppress(Exception):
                discard(connection)

    # --- running queries --------------------------------------------------------------------

    async def _run(self, queries: Queries[R]) -> R:
        if not self._store.ready:
            await self._get_ready()
        return await self._drive(queries)

    async def _get_ready(self) -> None:
        async with self._ready_lock:
            if not self._store.ready:
                await self._drive(self._dialect.ready_queries())
                self._store.ready = True

    async def _drive(self, queries: Queries[R]) -> R:
        answer: Answer | None = None
        failure: HoldfastError | None = None
        while True:
            try:
                query = queries.send(answer) if failure is None else queries.throw(failure)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            answer = failure = None
            try:
                answer = await self._execute(query)
            except HoldfastError as exc:
                failure = exc

    async def _execute(self, query: Query) -> Answer:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(query)
            except (Again, Broken) as lost:
                pause = pause_before_retry(lost, tries)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _once(self, query: Query) -> Answer:
        connection = await self._connect()
        try:
            raw = await connection.get_raw_connection()
            with deadline_on(raw.driver_connection, self._timeout_s):
                result = await connection.execute(query.statement, query.values)
                return answer_of(result)
        except Exception as exc:
            doing = "writing" if query.writing else "reading"
            failure, broken = self._store.database.trouble(exc, doing)  # type: ignore[arg-type]
            if broken:
                await _drop(connection)
            raise failure from cause(exc)
        finally:
            await _give_back(connection)

    async def _connect(self) -> AsyncConnection:
        if self._closed:
            raise Unavailable(f"{self._store.database.place}: the store was closed meanwhile.")
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                return await self._engine.connect()
        except Exception as exc:
            raise self._store.database.trouble(exc, "connecting")[0] from cause(exc)

    def _remember(self, connection: Any, record: Any) -> None:
        self._opened.add(connection.driver_connection)


async def _drop(connection: AsyncConnection) -> None:
    with suppress(Exception):
        await connection.invalidate()


async def _give_back(connection: AsyncConnection) -> None:
    # What was answered stays answered, whatever happens to the connection now.
    try:
        await connection.close()
    except Exception:
        await _drop(connection)
