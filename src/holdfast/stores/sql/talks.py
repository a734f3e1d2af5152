"""How a statement goes to the server on a connection of our own, and its answer back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import text
from sqlalchemy.engine.interfaces import Dialect as Driver

from holdfast.stores.spin import SpinWait, poll_of
from holdfast.stores.sql.dialect import Answer, Query

# How many statements are kept in a driver's spelling.
SPELLED = 64

# On an event loop: waits for what the driver returns there. Else there is nothing to do.
Finish: TypeAlias = Callable[[Any], Any]


class Talk(ABC):
    """One connection's side of the conversation."""

    @abstractmethod
    def ask(self, query: Query) -> Answer:
        """Run a statement."""

    @abstractmethod
    def is_closed_by_server(self) -> bool:
        """Between statements: whether the server was seen to end the connection. What is found
        out here need not be found out by a write, of which nobody would know whether it was
        done."""


class CursorTalk(Talk):
    """With any driver. A new cursor for each statement would cost a part of its time."""

    def __init__(self, connection: Any, driver_connection: Any, driver: Driver) -> None:
        self._cursor = connection.cursor()
        self._driver = driver
        self._reader = getattr(driver_connection, "_reader", None)  # aiomysql's
        sock = getattr(driver_connection, "_sock", None)  # PyMySQL's
        self._poll = None if sock is None else poll_of(sock.fileno())

    def ask(self, query: Query) -> Answer:
        cursor = self._cursor
        cursor.execute(*spelled(query, self._driver))
        if query.shows:
            return Answer(cursor.fetchall())
        return Answer((), cursor.rowcount, getattr(cursor, "lastrowid", None) or 0)

    def is_closed_by_server(self) -> bool:
        # MySQL says nothing that it was not asked for, but for the end.
        if self._reader is not None:
            return bool(self._reader.at_eof())
        return self._poll is not None and bool(self._poll(0))


def glance_before_reading(connection: Any, glances: SpinWait | None) -> None:
    """Have PyMySQL look for an answer before it sleeps for it, if it still reads them here."""
    read = getattr(connection, "_read_query_result", None)
    if glances is None or read is None or connection._sock is None:
        return
    poll = poll_of(connection._sock.fileno())

    def look_and_read(*args: Any, **options: Any) -> Any:
        glances.look(poll)
        return read(*args, **options)

    connection._read_query_result = look_and_read


def spelled(query: Query, driver: Driver) -> tuple[str, Any]:
    """A statement and its values as this driver wants them."""
    sql, order = _spelling(query.sql, driver)
    return sql, query.values if order is None else tuple(query.values[name] for name in order)


@lru_cache(SPELLED)
def _spelling(sql: str, driver: Driver) -> tuple[str, Sequence[str] | None]:
    compiled = text(sql).compile(dialect=driver)
    return str(compiled), list(compiled.positiontup or ()) if compiled.positional else None
