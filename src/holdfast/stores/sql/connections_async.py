"""One connection to a database, through the public API of its driver.

The drivers are psycopg, and aiomysql or PyMySQL; aiomysql has PyMySQL's API with `await`. Every
statement is a transaction of its own: connections are in autocommit.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from holdfast.runtime.flavour import ASYNC
from holdfast.stores.spin import poll_of
from holdfast.stores.sql.protocol import Answer, Query

if ASYNC:
    import asyncio

    from holdfast.stores.sql.io_timeout import shut_down

# psycopg prepares a statement when a connection has run it this often.
PREPARE_AFTER = 5


class PooledConnection(ABC):
    """A connection while a statement runs on it. `driver` is the driver's own."""

    driver: Any = None

    @abstractmethod
    async def ask(self, query: Query) -> Answer:
        """Run a statement. Returns its answer."""

    def is_gone(self) -> bool:
        """Returns whether the driver has found it broken."""
        return False


class OwnedConnection(PooledConnection):
    """A connection that Holdfast opens itself."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._cursor: Any = None
        self.opened_at = 0.0  # set when it is open; until then only the opener touches it
        if ASYNC:
            self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Connect."""
        await self._connect(dict(self._arguments))

    @abstractmethod
    async def _connect(self, arguments: dict[str, Any]) -> None:
        """Open `driver` and `_cursor`. One cursor serves all statements, since a new one for each
        costs a part of its time."""

    async def prepare(self) -> None:
        """Ask the server what has to be known before the first statement."""

    @abstractmethod
    def is_closed_by_server(self) -> bool:
        """Returns whether the server was seen to end it while it was idle. If that is found out
        here, a write need not find it out, whose outcome would then be unknown."""

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye and close it."""

    @abstractmethod
    def terminate(self) -> None:
        """Close it without waiting for anything."""

    if ASYNC:

        def hang_up(self, *, in_use: bool) -> None:
            """Close it from any thread, whether its event loop runs, stands still or is closed. If
            it is in use on a loop that runs, break it: the task that uses it closes it then."""
            is_running = self._loop.is_running()
            end = self.break_off if in_use and is_running else self.terminate
            if is_running and self._loop is not _running_loop():
                with suppress(RuntimeError):  # the loop was closed just now
                    self._loop.call_soon_threadsafe(end)
            else:
                end()

        def break_off(self) -> None:
            """Have the statement under way fail."""
            self.terminate()


class PostgreSQLConnection(OwnedConnection):
    """A connection of psycopg's.

    A statement that comes often is prepared. A prepared statement belongs to a session, and
    behind a pooler in transaction mode the session is another one each time. But a pooler gives
    its clients process ids of its own: where the server names the one that we were told when we
    connected, no pooler stands between.
    """

    async def _connect(self, arguments: dict[str, Any]) -> None:
        self.driver = await _psycopg_class().connect(**arguments, autocommit=True)
        self.driver.prepare_threshold = None  # until `prepare` has found out
        self._cursor = self.driver.cursor()
        self._poll = poll_of(self.driver.fileno())

    async def prepare(self) -> None:
        ((process,),) = (await self.ask(Query("SELECT pg_backend_pid()"))).rows
        if process == self.driver.info.backend_pid:
            self.driver.prepare_threshold = PREPARE_AFTER

    async def ask(self, query: Query) -> Answer:
        if query.many:
            return await self._ask_many(query)
        await self._cursor.execute(*spelled(query))
        return Answer(await self._cursor.fetchall() if query.shows else ())

    async def _ask_many(self, query: Query) -> Answer:
        rows: list[Any] = []
        # Only with the values in their text can several statements go in one message.
        cursor = await _client_cursor(self.driver).execute(*spelled(query))
        while True:
            if cursor.description is not None:
                rows += await cursor.fetchall()
            if not cursor.nextset():
                return Answer(rows)

    def is_gone(self) -> bool:
        return self.driver is None or bool(self.driver.closed)

    def is_closed_by_server(self) -> bool:
        # Unasked, the server reports the end of the session, or a setting that has changed; in the
        # second case a new connection does no harm.
        return self._poll is not None and bool(self._poll(0))

    async def close(self) -> None:
        await self.driver.close()

    def terminate(self) -> None:
        if self.driver is not None:
            with suppress(Exception):
                self.driver.pgconn.finish()

    if ASYNC:

        def break_off(self) -> None:
            """psycopg would go on with memory that is not its own, and the process would crash, if
            its connection were closed under a statement."""
            shut_down(self.driver)


@cache
def _psycopg_class() -> Any:
    from psycopg import AsyncConnection, waiting

    class InterruptedAtOnce(AsyncConnection[Any]):
        """Lets an interrupt through at once. psycopg would ask the server first, for up to ten
        seconds, to end the statement; ours ends with its connection, which is closed."""

        async def wait(self, gen: Any, *args: Any, **limits: Any) -> Any:
            limits.setdefault("interval", 0.1)
            return await waiting.wait_async(gen, self.pgconn.socket, *args, **limits)

    return InterruptedAtOnce


def _client_cursor(driver: Any) -> Any:
    from psycopg import AsyncClientCursor

    return AsyncClientCursor(driver)


class MySQLConnection(OwnedConnection):
    """A connection of aiomysql's or PyMySQL's."""

    async def _connect(self, arguments: dict[str, Any]) -> None:
        if ASYNC:
            from aiomysql import connect
        else:
            from pymysql import connect
        self.driver = await connect(**arguments, autocommit=True)
        self._cursor = await self.driver.cursor()
        if not ASYNC:
            self._poll = poll_of(self.driver._sock.fileno())

    if ASYNC:

        async def prepare(self) -> None:
            """aiomysql goes on without TLS where the server has none."""
            if "ssl" in self._arguments:
                ((_, cipher),) = (await self.ask(Query("SHOW STATUS LIKE 'Ssl_cipher'"))).rows
                if not cipher:
                    raise ValueError("TLS is asked for, and the server has none")

    async def ask(self, query: Query) -> Answer:
        cursor = self._cursor
        await cursor.execute(*spelled(query))
        if query.shows and not query.many:
            return Answer(await cursor.fetchall())
        count, last_id, rows = cursor.rowcount, cursor.lastrowid or 0, list[Any]()
        while query.many:
            rows += await cursor.fetchall() if cursor.description else ()
            if not await cursor.nextset():
                break
        return Answer(rows, count, last_id)

    def is_gone(self) -> bool:
        return bool(self.driver.closed) if ASYNC else not self.driver.open

    def is_closed_by_server(self) -> bool:
        # Unasked, the server says nothing but that the session has ended.
        if ASYNC:
            reader = self.driver._reader
            return reader is None or bool(reader.at_eof()) or reader.exception() is not None
        else:
            return self._poll is not None and bool(self._poll(0))

    async def close(self) -> None:
        if ASYNC:
            await self.driver.ensure_closed()
        else:
            self.driver.close()

    def terminate(self) -> None:
        if self.driver is not None:
            if ASYNC:
                # If the event loop is closed, the first call fails after it has marked the
                # transport as closed, and the second one lets go of it.
                with suppress(RuntimeError):
                    self.driver.close()
            with suppress(Exception):
                self.driver.close()


CONNECTIONS: dict[str, type[OwnedConnection]] = {
    "postgresql": PostgreSQLConnection,
    "mysql": MySQLConnection,
    "mariadb": MySQLConnection,
}


def spelled(query: Query) -> tuple[str, Any]:
    """Returns a statement and its values as all three drivers want them."""
    return (_pyformat(query.sql), query.values) if query.values else (query.sql, None)


@lru_cache(128)
def _pyformat(sql: str) -> str:
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", sql.replace("%", "%%"))


if ASYNC:

    def _running_loop() -> asyncio.AbstractEventLoop | None:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None
