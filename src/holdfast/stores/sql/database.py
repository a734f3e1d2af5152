"""Runs the queries of a dialect on a blocking engine."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.sql.deadlines import Deadlines
from holdfast.stores.sql.dialect import Answer, Dialect, Queries, Query
from holdfast.stores.sql.engine import Options, place_of
from holdfast.stores.sql.errors import Again, Broken, Doing, cause, trouble

R = TypeVar("R")

# A statement that lost against another one (deadlock, serialization) is tried this often.
MOST_TRIES = 6
SHORTEST_PAUSE_S = 0.002

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class Database:
    """One engine, ours or borrowed."""

    def __init__(self, engine: Engine, dialect: Dialect, options: Options, *, owned: bool) -> None:
        self.engine = engine if owned else engine.execution_options(isolation_level="AUTOCOMMIT")
        self.place = place_of(engine.url)
        self._dialect = dialect
        self._owned = owned
        self._closed = False
        self._deadlines = Deadlines(options.timeout_s)

    def run(self, queries: Queries[R]) -> R:
        """Run to the end."""
        answer: Answer | None = None
        failure: HoldfastError | None = None
        while True:
            try:
                query = queries.send(answer) if failure is None else queries.throw(failure)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            answer = failure = None
            try:
                answer = self.execute(query)
            except HoldfastError as exc:
                failure = exc

    def execute(self, query: Query) -> Answer:
        """One statement, again if that is harmless and may help."""
        tries = 0
        while True:
            tries += 1
            try:
                return self._once(query)
            except (Again, Broken) as lost:
                pause = pause_before_retry(lost, tries)
                if pause is None:
                    raise
            time.sleep(pause)

    def close(self) -> None:
        """Close the pool, if it is ours."""
        self._closed = True
        if self._owned:
            self.engine.dispose()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._closed = True
        _abandoned.append(self.engine.pool)
        if self._owned:
            self.engine.dispose(close=False)

    def connect(self) -> Connection:
        """A connection of the pool; its errors are ours."""
        if self._closed:
            raise Unavailable(f"{self.place}: the store was closed meanwhile.")
        try:
            return self.engine.connect()
        except Exception as exc:
            raise self.trouble(exc, "connecting")[0] from cause(exc)

    def trouble(self, exc: Exception, doing: Doing) -> tuple[HoldfastError, bool]:
        """The driver's error in our words, and whether the connection is of no more use."""
        return trouble(exc, self._dialect.diagnosis, doing, self.place)

    def _once(self, query: Query) -> Answer:
        connection = self.connect()
        try:
            with self._deadlines.on(connection.connection.driver_connection):
                result = connection.execute(query.statement, query.values)
                return answer_of(result)
        except Exception as exc:
            failure, broken = self.trouble(exc, "writing" if query.writing else "reading")
            if broken:
                self._drop(connection)
            raise failure from cause(exc)
        except BaseException:  # an interrupt: who knows where the driver stands
            self._drop(connection)
            raise
        finally:
            self._give_back(connection)

    def _drop(self, connection: Connection) -> None:
        with suppress(Exception):
            connection.invalidate()

    def _give_back(self, connection: Connection) -> None:
        # What was answered stays answered, whatever happens to the connection now.
        try:
            if self._closed and self._owned:
                connection.invalidate()
            connection.close()
        except Exception:
            self._drop(connection)


def answer_of(result: Any) -> Answer:
    """What is of use in SQLAlchemy's result."""
    if result.returns_rows:
        return Answer(result.all())
    return Answer((), result.rowcount, getattr(result, "lastrowid", None) or 0)


def pause_before_retry(lost: Again | Broken, tries: int) -> float | None:
    """How long to wait before the statement is sent again; None: do not."""
    if isinstance(lost, Broken):
        # A pooled connection was stale. The pool knows now, and makes a new one.
        return 0.0 if tries == 1 else None
    if tries >= MOST_TRIES:
        return None
    return random.uniform(0, SHORTEST_PAUSE_S * 2**tries)
