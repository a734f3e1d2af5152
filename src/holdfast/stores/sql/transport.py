# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Runs statements: takes a connection, asks within a time limit, and says what an error means."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from holdfast.core.records import NEVER, SECOND, Micros
from holdfast.errors import HoldfastError, Unavailable
from holdfast.runtime import clock
from holdfast.runtime.pool import DaemonPool
from holdfast.runtime.run import run
from holdfast.stores.sql import connect
from holdfast.stores.sql.connections import CONNECTIONS, OwnedConnection, PooledConnection
from holdfast.stores.sql.errors import Again, AlreadyThere, Broken, Doing, NoMore, cause, is_foreign
from holdfast.stores.sql.errors import trouble as trouble_of
from holdfast.stores.sql.io_timeout import PendingCall, SocketTimeouts
from holdfast.stores.sql.pool import OwnedPool
from holdfast.stores.sql.protocol import Answer, Dialect, Queries, Query

A = TypeVar("A")
R = TypeVar("R")

# A statement that lost against another one (deadlock, serialization) is tried this often.
MOST_TRIES = 6
SHORTEST_PAUSE_S = 0.002

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class Transport:
    """Runs the statements of one store over a pool of connections."""

    def __init__(
        self, url: connect.AnyURL, dialect: Dialect, options: connect.Options, engine: Any
    ) -> None:
        """`engine` is an application's; if it is None, connections to `url` are opened here."""
        self.place = connect.place_of(url)
        self._diagnosis = dialect.diagnosis
        self._timeout_s = options.timeout_s
        self._closed = False
        self._timeouts = SocketTimeouts()
        self._connectors = DaemonPool(options.pool_size + 1, "holdfast-connect")
        self.pool: Any
        if engine is not None:
            from holdfast.stores.sql.engine_pool import EnginePool

            self.pool = EnginePool(engine, self._within)
        else:
            kind = CONNECTIONS[url.get_backend_name()]
            arguments = connect.arguments_for(url, options, "blocking")
            self.pool = OwnedPool(
                lambda: kind(arguments), self._open, self._is_shortage, options.pool_size
            )

    def run(self, queries: Queries[R], by: Micros = NEVER) -> R:
        """Run the queries of an operation. Returns its outcome, `by` then or never."""
        return run(queries, {}, {Query: partial(self.execute, by=by)})

    def execute(self, query: Query, by: Micros = NEVER) -> Answer:
        """Run one statement. Returns its answer."""
        return self._retried(self._once, query, by)

    def transact(self, make_queries: Callable[[], Queries[R]], by: Micros) -> R:
        """Run the queries of a transaction on one connection. Returns its outcome."""
        return self._retried(self._transact, make_queries, by)

    def _retried(self, once: Callable[[A, float], R], asked: A, by: Micros) -> R:
        """Returns what `once` returns, which is called again if that is harmless and may help."""
        tries = 0
        while True:
            tries += 1
            try:
                return once(asked, self.ends_at(by))
            except (Again, Broken) as lost:
                pause = pause_before_retry(lost, tries)
                if pause is None or clock.monotonic() + pause * SECOND >= by:
                    raise
            time.sleep(pause)

    def ends_at(self, by: Micros = NEVER) -> float:
        """Returns when a statement that begins now must have ended, on Python's monotonic clock."""
        left_s = (by - clock.monotonic()) / SECOND
        if left_s <= 0:
            raise Unavailable(f"{self.place}: the time for this was over before it was asked.")
        return time.monotonic() + min(left_s, self._timeout_s)

    def ask(self, connection: PooledConnection, query: Query, ends_at: float) -> Answer:
        """Run a statement on this connection, within the time allowed."""
        with self._limit(ends_at, connection):
            return connection.ask(query)

    def acquire(self, ends_at: float) -> Any:
        """Returns a connection of the pool's; errors are Holdfast's."""
        return self._connected(self.pool.acquire, ends_at)

    def open_apart(self, ends_at: float) -> Any:
        """Returns a connection to keep for good, of which the pool knows nothing."""
        return self._connected(self.pool.open_apart, ends_at)

    def close(self) -> None:
        """Close the connections that Holdfast has opened."""
        self._closed = True
        self.pool.close()
        self._timeouts.close()
        self._connectors.close()

    def abandon(self) -> None:
        """In a forked child: leave the connections alone, which are the parent's."""
        self._closed = True
        _abandoned.append(self.pool.abandon())

    def _once(self, query: Query, ends_at: float) -> Answer:
        connection = self.pool.idle() or self.acquire(ends_at)
        try:
            answer = self.ask(connection, query, ends_at)
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

    def _transact(self, make_queries: Callable[[], Queries[R]], ends_at: float) -> R:
        connection = self.acquire(ends_at)
        doing: Doing = "reading"

        def ask(query: Query) -> Answer:
            nonlocal doing
            doing = query.doing
            return self.ask(connection, query, ends_at)

        try:
            outcome = run(make_queries(), {}, {Query: ask})
        except BaseException as exc:
            # Whatever it was, a transaction may be open: with the connection it ends.
            gone = connection.is_gone()
            self.pool.discard(connection)
            if not isinstance(exc, Exception) or is_foreign(exc) or isinstance(exc, HoldfastError):
                raise
            failure = self._trouble(exc, doing, gone=gone)[0]
            if isinstance(failure, AlreadyThere):  # another one has created the record meanwhile
                failure = Again(str(failure))
            raise failure from cause(exc)
        self.pool.release(connection)
        return outcome

    def _connected(self, open_one: Callable[[float], Any], ends_at: float) -> Any:
        if self._closed:
            raise Unavailable(f"{self.place}: the store was closed meanwhile.")
        try:
            return open_one(ends_at)
        except Exception as exc:
            if is_foreign(exc):
                raise
            raise self._trouble(exc, "connecting")[0] from cause(exc)

    def _open(self, connection: OwnedConnection, ends_at: float) -> None:
        """Open a connection, within the time allowed."""

        def open_it() -> None:
            # Nobody else may touch it meanwhile, also if its time is over: libpq does not allow it.
            try:
                connection.open()
                with self._limit(ends_at, connection):
                    connection.prepare()
            except BaseException:
                connection.terminate()
                raise
            connection.opened_at = time.monotonic()

        self._within(ends_at, open_it, lambda _: connection.terminate())

    def _within(self, ends_at: float, call: Callable[[], R], too_late: Callable[[R], object]) -> R:
        """Returns what `call` returns, which connects. A driver cannot be told in the middle of it
        that its time is over: in threads, another one calls, and what it gets when nobody waits
        for it any more goes to `too_late`."""
        calling = _submitted(self._connectors, call)
        try:
            return calling.result(max(0.0, ends_at - time.monotonic()))
        except BaseException:
            calling.add_done_callback(lambda done: done.exception() or too_late(done.result()))
            raise

    def _limit(self, ends_at: float, connection: PooledConnection) -> Any:
        """Returns a context whose body fails with a TimeoutError if it has not ended by then."""
        return PendingCall(self._timeouts, ends_at, connection.driver)

    def _is_shortage(self, exc: Exception) -> bool:
        return not is_foreign(exc) and isinstance(self._trouble(exc, "connecting")[0], NoMore)

    def _trouble(
        self, exc: Exception, doing: Doing, *, gone: bool = False
    ) -> tuple[HoldfastError, bool]:
        return trouble_of(exc, self._diagnosis, doing, self.place, gone=gone)


def _submitted(pool: DaemonPool, call: Callable[[], R]) -> Future[R]:
    try:
        return pool.submit(call)
    except RuntimeError as exc:  # this process cannot start another thread
        raise ConnectionError(str(exc)) from exc


def pause_before_retry(lost: Again | Broken, tries: int) -> float | None:
    """Returns how long to wait before the statement is sent again; None: not at all."""
    if isinstance(lost, Broken):
        # A pooled connection was cut. The pool knows now, and opens a new one.
        return 0.0 if tries == 1 else None
    if tries >= MOST_TRIES:
        return None
    return random.uniform(0, SHORTEST_PAUSE_S * 2**tries)
