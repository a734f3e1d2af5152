# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Runs statements: takes a connection, asks within a time limit, and says what an error means."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, Unavailable
from holdfast.runtime.run import run
from holdfast.stores.sql.connections import CONNECTIONS, OwnedConnection, PooledConnection
from holdfast.stores.sql.errors import Again, Broken, Diagnosis, Doing, NoMore, cause, is_foreign
from holdfast.stores.sql.errors import trouble as trouble_of
from holdfast.stores.sql.io_timeout import SocketTimeouts
from holdfast.stores.sql.pool import OwnedPool
from holdfast.stores.sql.protocol import Answer, Queries, Query

R = TypeVar("R")

# A statement that lost against another one (deadlock, serialization) is tried this often.
MOST_TRIES = 6
SHORTEST_PAUSE_S = 0.002

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class Transport:
    """Runs the statements of one store over a pool of connections."""

    def __init__(self, place: str, diagnosis: Diagnosis, timeout_s: float) -> None:
        self.place = place
        self._diagnosis = diagnosis
        self._timeout_s = timeout_s
        self._closed = False
        self._timeouts: Any = SocketTimeouts(timeout_s)
        self._awaited: dict[type, Callable[[Any], Any]] = {Query: self.execute}
        self.pool: Any = None
        self.borrows = False  # the connections are an application's

    def use(self, pool: Any) -> None:
        """Take connections from a pool of the application's."""
        self.pool, self.borrows = pool, True

    def open_own(self, family: str, arguments: dict[str, Any], size: int) -> OwnedPool:
        """Open connections with these arguments of the driver's, `size` at most."""
        kind = CONNECTIONS[family]
        self.pool = pool = OwnedPool(
            lambda: kind(arguments), self._open, self._is_shortage, size, self._timeout_s
        )
        return pool

    def run(self, queries: Queries[R]) -> R:
        """Run the queries of an operation. Returns its outcome."""
        return run(queries, {}, self._awaited)

    def execute(self, query: Query) -> Answer:
        """Run one statement, again if that is harmless and may help. Returns its answer."""
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

    def ask(self, connection: PooledConnection, query: Query) -> Answer:
        """Run a statement on this connection, within the time allowed."""
        timeout = self._timeouts.start(connection.driver)
        try:
            return connection.ask(query)
        finally:
            self._timeouts.stop(timeout)

    def acquire(self) -> Any:
        """Returns a connection of the pool's; errors are Holdfast's."""
        return self._connected(self.pool.acquire)

    def open_apart(self) -> Any:
        """Returns a connection to keep for good, of which the pool knows nothing."""
        return self._connected(self.pool.open_apart)

    def end(self) -> None:
        """Run nothing any more."""
        self._closed = True

    def close(self) -> None:
        """Close the connections that Holdfast has opened."""
        self.end()
        self.pool.close()
        self._timeouts.close()

    def abandon(self) -> None:
        """In a forked child: leave the connections alone, which are the parent's."""
        self.end()
        _abandoned.append(self.pool.abandon())

    def _once(self, query: Query) -> Answer:
        connection = self.acquire()
        try:
            answer = self.ask(connection, query)
        except BaseException as exc:
            if not isinstance(exc, Exception) or is_foreign(exc):
                self.pool.discard(connection)  # interrupted: the driver's state is unknown
                raise
            failure, broken = self._trouble(exc, query.doing, gone=connection.is_gone())
            if broken:
                self.pool.discard(connection, broken=True)
            else:
                self.pool.release(connection)
            raise failure from cause(exc)
        self.pool.release(connection)
        return answer

    def _connected(self, connect: Callable[[], Any]) -> Any:
        if self._closed:
            raise Unavailable(f"{self.place}: the store was closed meanwhile.")
        try:
            return connect()
        except Exception as exc:
            if is_foreign(exc):
                raise
            raise self._trouble(exc, "connecting")[0] from cause(exc)

    def _open(self, connection: OwnedConnection) -> None:
        """Open a connection, within the time allowed."""
        connection.open()
        timeout = self._timeouts.start(connection.driver)
        try:
            connection.prepare()
        finally:
            self._timeouts.stop(timeout)

    def _is_shortage(self, exc: Exception) -> bool:
        return not is_foreign(exc) and isinstance(self._trouble(exc, "connecting")[0], NoMore)

    def _trouble(
        self, exc: Exception, doing: Doing, *, gone: bool = False
    ) -> tuple[HoldfastError, bool]:
        return trouble_of(exc, self._diagnosis, doing, self.place, gone=gone)


def pause_before_retry(lost: Again | Broken, tries: int) -> float | None:
    """Returns how long to wait before the statement is sent again; None: not at all."""
    if isinstance(lost, Broken):
        # A pooled connection was cut. The pool knows now, and opens a new one.
        return 0.0 if tries == 1 else None
    if tries >= MOST_TRIES:
        return None
    return random.uniform(0, SHORTEST_PAUSE_S * 2**tries)
