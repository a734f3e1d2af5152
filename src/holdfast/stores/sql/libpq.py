"""PostgreSQL without a cursor: statements go to libpq through psycopg's wrapper of it.

psycopg's cursors find out for each statement how its values are written and its rows read,
which takes them longer than the message takes to the server and back. Here all values are
texts and whole numbers, so there is nothing to find out.

A statement that comes often is prepared, so that the server need not plan it each time. A
prepared statement belongs to a session, and behind a pooler in transaction mode the session
is another one each time. But a pooler gives its clients process ids of its own making:
where the server's own is the one that we were told when we connected, nothing that could
change sessions is in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus

from holdfast.stores.spin import SpinWait, poll_of
from holdfast.stores.sql.dialect import Answer, Query
from holdfast.stores.sql.talks import SPELLED, Finish, Talk

# A statement is prepared when a connection has run it so often, as psycopg itself does.
PREPARE_AFTER = 5
MOST_PREPARED = 32

_WORKED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class PgTalk(Talk):
    """On a connection of psycopg's, blocking or for asyncio."""

    def __init__(self, connection: Any, finish: Finish, glances: SpinWait | None) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._glances = glances
        self._poll = poll_of(self._pgconn.socket)
        self._finish = finish
        self._encoding = connection.info.encoding
        self._uses: dict[str, int] = {}
        self._prepared: dict[str, bytes] = {}
        self._direct = False
        ((pid,),) = self.ask(Query("SELECT pg_backend_pid()")).rows
        self._direct = pid == self._pgconn.backend_pid

    def ask(self, query: Query) -> Answer:
        sql, names = _spelling(query.sql)
        values, coding = query.values, self._encoding
        given = [None if (v := values[name]) is None else str(v).encode(coding) for name in names]
        name = self._prepared.get(sql) or self._prepare(sql)
        if name is None:
            self._pgconn.send_query_params(sql.encode(coding), given)
        else:
            self._pgconn.send_query_prepared(name, given)
        return Answer(self._rows(self._result()))

    def is_closed_by_server(self) -> bool:
        # Unasked, a server says that this is the end; or that a setting has changed, and then a new
        # connection does no harm.
        return self._poll is not None and bool(self._poll(0))

    def _prepare(self, sql: str) -> bytes | None:
        """The name of the prepared statement, if it is one by now."""
        if not self._direct or len(self._prepared) >= MOST_PREPARED:
            return None
        self._uses[sql] = uses = self._uses.get(sql, 0) + 1
        if uses <= PREPARE_AFTER:
            return None
        name = b"holdfast_%d" % len(self._prepared)
        self._pgconn.send_prepare(name, sql.encode(self._encoding))
        self._result()
        self._prepared[sql] = name
        return name

    def _result(self) -> Any:
        if self._glances is not None:
            self._pgconn.flush()
            self._glances.look(self._poll)
        results = self._finish(self._connection.wait(execute(self._pgconn)))
        result = results[-1]
        if result.status not in _WORKED:
            raise error_from_result(result, self._encoding)
        return result

    def _rows(self, result: Any) -> list[tuple[Any, ...]]:
        value = result.get_value
        readers = [
            (column, READERS.get(result.ftype(column), self._text))
            for column in range(result.nfields)
        ]
        return [
            tuple(
                None if (raw := value(row, column)) is None else read(raw)
                for column, read in readers
            )
            for row in range(result.ntuples)
        ]

    def _text(self, raw: bytes) -> str:
        return raw.decode(self._encoding)


# By the number of the type: bool, and the whole numbers. All else is text.
READERS: dict[int, Callable[[bytes], Any]] = {16: b"t".__eq__, 20: int, 21: int, 23: int}


@lru_cache(SPELLED)
def _spelling(sql: str) -> tuple[str, list[str]]:
    """With numbers for the values' names, and the names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found[1]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return re.sub(r"(?<![:\w]):(\w+)", number, sql), names
