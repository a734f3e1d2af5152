"""Runs the queries of a dialect on an engine, ours or an application's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Engine

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.sql.dialect import Answer, Dialect, Queries, Query
from holdfast.stores.sql.engine import Options, place_of
from holdfast.stores.sql.errors import Again, Broken, Doing, NoMore, cause, is_foreign, trouble
from holdfast.stores.sql.talks import CursorTalk, Talk, glance_before_reading
from holdfast.stores.sql.ways import Threads, Way
from holdfast.stores.sql.wires import OwnWires, Wire, Wires

R = TypeVar("R")

# A statement that lost against another one (deadlock, serialization) is tried this often.
MOST_TRIES = 6
SHORTEST_PAUSE_S = 0.002
PSYCOPG = ("psycopg", "psycopg_async")

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class Database:
    """One engine, ours or borrowed."""

    def __init__(
        self,
        engine: Engine,
        dialect: Dialect,
        options: Options,
        *,
        owned: bool,
        way: Way | None = None,
    ) -> None:
        self.place = place_of(engine.url)
        self._engine = engine
        self._dialect = dialect
        self._owned = owned
        self._closed = False
        self._way = way = way or Threads()
        self._limits = way.limits(options.timeout_s)
        self._wires: Wires
        if owned:
            self._wires = OwnWires(engine, way, self._welcome, self._is_shortage, options)
        else:
            self._wires = Wires(engine.execution_options(isolation_level="AUTOCOMMIT"), way)

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
            self._way.nap(pause)

    def end(self) -> None:
        """Run nothing any more."""
        self._closed = True

    def close(self) -> None:
        """Close the pool, if it is ours."""
        self.end()
        self._wires.close()
        if self._owned:
            self._engine.dispose()
        self._limits.close()

    def let_go(self) -> None:
        """Their event loop is closed, and so are they: forget all connections."""
        self._closed = True
        self._wires.let_go()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._closed = True
        _abandoned.append(self._wires.abandon())

    def take(self) -> Wire:
        """A connection; its errors are ours."""
        return self._connected(self._wires.take)

    def open_apart(self) -> Wire:
        """A connection to keep for good, of which the pool knows nothing."""
        return self._connected(self._wires.open_apart)

    def _connected(self, connect: Callable[[], Wire]) -> Wire:
        if self._closed:
            raise Unavailable(f"{self.place}: the store was closed meanwhile.")
        try:
            return connect()
        except Exception as exc:
            if is_foreign(exc):
                raise
            raise self.trouble(exc, "connecting")[0] from cause(exc)

    def _is_shortage(self, exc: Exception) -> bool:
        return not is_foreign(exc) and isinstance(self.trouble(exc, "connecting")[0], NoMore)

    def trouble(
        self, exc: Exception, doing: Doing, *, gone: bool = False
    ) -> tuple[HoldfastError, bool]:
        """The driver's error in our words, and whether the connection is of no more use."""
        return trouble(exc, self._dialect.diagnosis, doing, self.place, gone=gone)

    def _once(self, query: Query) -> Answer:
        wire = self.take()
        try:
            answer = self.ask(wire, query)
        except BaseException as exc:
            if not isinstance(exc, Exception) or is_foreign(exc):
                self._wires.drop(wire)  # an interrupt: who knows where the driver stands
                raise
            gone = wire.is_gone(exc, self._engine.dialect)
            failure, broken = self.trouble(exc, query.doing, gone=gone)
            if broken:
                self._wires.give_up(wire)
            else:
                self._wires.give_back(wire)
            raise failure from cause(exc)
        self._wires.give_back(wire)
        return answer

    def ask(self, wire: Wire, query: Query) -> Answer:
        """Run a statement on this connection, within the time allowed."""
        with self._limits.on(wire.driver_connection):
            return wire.ask(query)

    def _welcome(self, connection: Any, driver_connection: Any) -> Talk:
        glances = self._wires.glances
        if self._engine.dialect.driver not in PSYCOPG:
            glance_before_reading(driver_connection, glances)
            return CursorTalk(connection, driver_connection, self._engine.dialect)
        from holdfast.stores.sql.libpq import PgTalk

        with self._limits.on(driver_connection):
            return PgTalk(driver_connection, self._way.finish, glances)


def pause_before_retry(lost: Again | Broken, tries: int) -> float | None:
    """How long to wait before the statement is sent again; None: do not."""
    if isinstance(lost, Broken):
        # A pooled connection was stale. The pool knows now, and makes a new one.
        return 0.0 if tries == 1 else None
    if tries >= MOST_TRIES:
        return None
    return random.uniform(0, SHORTEST_PAUSE_S * 2**tries)
