"""Connections for statements, from a pool of our own or from an application's.

SQLAlchemy's way of running a statement takes more time than the driver and the server
together. So our own connections stay outside of the pool that opened them for as long as
nobody waits for one, and statements go straight to the driver.

On an application's engine nothing of that: each statement borrows a connection, and runs
so that whoever listens to the engine's events hears of it.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import Dialect as Driver
from sqlalchemy.exc import TimeoutError
from sqlalchemy.pool import PoolProxiedConnection

from holdfast.stores.spin import SpinWait
from holdfast.stores.sql.dialect import Answer, Query
from holdfast.stores.sql.engine import Options
from holdfast.stores.sql.talks import Talk, spelled
from holdfast.stores.sql.ways import Waiter, Way

# A connection that is older than this is replaced: something on the way may have cut it.
RECYCLE_S = 1800
TALK = "holdfast"

Welcome = Callable[[Any, Any], Talk]  # for a new connection and the driver's own in it
IsShortage = Callable[[Exception], bool]  # whether only another connection cannot be had now


class Wire(ABC):
    """A connection while a statement runs on it."""

    __slots__ = ("driver_connection", "lent")
    lent: Connection | PoolProxiedConnection
    driver_connection: Any

    @abstractmethod
    def ask(self, query: Query) -> Answer:
        """Run a statement."""

    def is_gone(self, exc: Exception, driver: Driver) -> bool:
        """Whether an error that SQLAlchemy did not see means that the connection is broken."""
        return False

    def drop(self) -> None:
        """It is of no more use."""
        with suppress(Exception):
            self.lent.invalidate()
            self.lent.close()


class OwnWire(Wire):
    """A connection of ours."""

    __slots__ = ("_talk", "opened_at")
    lent: PoolProxiedConnection

    def __init__(self, lent: PoolProxiedConnection) -> None:
        self.lent = lent
        self.driver_connection = lent.driver_connection
        self._talk, self.opened_at = lent.info[TALK]

    def ask(self, query: Query) -> Answer:
        return self._talk.ask(query)  # type: ignore[no-any-return]

    def is_closed_by_server(self) -> bool:
        """Whether the server was seen to end it while it was idle."""
        return self._talk.is_closed_by_server()  # type: ignore[no-any-return]

    def is_gone(self, exc: Exception, driver: Driver) -> bool:
        if not isinstance(exc, driver.loaded_dbapi.Error):
            return False
        return driver.is_disconnect(exc, self.lent.dbapi_connection, None)


class BorrowedWire(Wire):
    """A connection of an application's."""

    __slots__ = ()
    lent: Connection

    def __init__(self, lent: Connection) -> None:
        self.lent = lent
        self.driver_connection = lent.connection.driver_connection

    def ask(self, query: Query) -> Answer:
        result = self.lent.exec_driver_sql(*spelled(query, self.lent.dialect))
        if result.returns_rows:
            return Answer(result.all())
        return Answer((), result.rowcount, getattr(result, "lastrowid", None) or 0)


def _loosely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Call this as long as its object is there, without keeping it. SQLAlchemy keeps a pool while
    a connection of it is lent: if it kept us, who have them, neither would ever go."""
    method_of = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        found = method_of()
        return None if found is None else found(*args)

    return call


class Wires:
    """Where connections come from: here, an application's engine."""

    def __init__(self, engine: Engine, way: Way) -> None:
        self.engine = engine
        self._way = way
        self.glances: SpinWait | None = None

    def take(self) -> Wire:
        """One that nobody else uses."""
        return BorrowedWire(self._way.open(self.engine.connect))

    def give_back(self, wire: Any) -> None:
        """It may be used again. What was answered stays answered, whatever happens now."""
        try:
            wire.lent.close()
        except Exception:
            wire.drop()

    def give_up(self, wire: Any) -> None:
        """It broke."""
        wire.drop()

    def drop(self, wire: Any) -> None:
        """Nobody knows what state it is in."""
        wire.drop()

    def open_apart(self) -> Wire:
        """One that is none of the pool's."""
        wire = self.take()
        wire.lent.detach()
        return wire

    def close(self) -> None:
        """Let go of what is ours."""

    def let_go(self) -> None:
        """The same where all connections are closed already."""

    def abandon(self) -> Any:
        """What is to be left alone in a forked child, where it is the parent's."""
        return self.engine.pool


class OwnWires(Wires):
    """Our own engine. Its pool opens connections, and they stay with us.

    Whoever gives a wire back puts it down before looking for waiters, and whoever waits is
    seen to wait before looking for wires once more. So nobody waits for one that is idle.
    """

    def __init__(
        self,
        engine: Engine,
        way: Way,
        welcome: Welcome,
        is_shortage: IsShortage,
        options: Options,
    ) -> None:
        super().__init__(engine, way)
        self._idle: list[OwnWire] = []
        self._waiters: deque[Waiter] = deque()
        self._lock = threading.Lock()
        self._opening, self._most = 0, options.pool_size
        self._timeout_s = options.timeout_s
        self._closed = False
        self._broke_at = 0.0
        self._welcome = welcome
        self._is_shortage = is_shortage
        self.glances = way.glances(_loosely(self._one_is_used))
        event.listen(engine, "connect", _loosely(self._connected))

    def take(self) -> OwnWire:
        while True:
            wire = self._pick_up() or self._open_or_wait()
            if wire is None:
                continue
            fresh = wire.opened_at > max(self._broke_at, time.monotonic() - RECYCLE_S)
            if fresh and not wire.is_closed_by_server():
                return wire
            self.drop(wire)

    def give_back(self, wire: OwnWire) -> None:
        self._idle.append(wire)
        if self._closed:
            self.close()
        elif self._waiters:
            self._settle()

    def give_up(self, wire: OwnWire) -> None:
        """When one broke, the others may have been cut with it."""
        self._broke_at = time.monotonic()
        self.drop(wire)

    def drop(self, wire: OwnWire) -> None:
        wire.drop()
        self._make_room()

    def open_apart(self) -> OwnWire:
        """A new one: whoever runs statements keeps theirs, also where no more can be had."""
        wire = OwnWire(self._way.open(self.engine.raw_connection))
        wire.lent.detach()
        return wire

    def close(self) -> None:
        self._closed = True
        while (wire := self._pick_up()) is not None:
            wire.drop()
        with self._lock:
            while self._waiters:
                self._waiters.popleft().put(None)

    def let_go(self) -> None:
        while (wire := self._pick_up()) is not None:
            wire.lent.detach()

    def abandon(self) -> Any:
        self._closed = True
        left, self._idle = self._idle, []
        pool = self.engine.pool
        self.engine.dispose(close=False)
        return left, pool

    def _one_is_used(self) -> bool:
        pool: Any = self.engine.pool
        return bool(pool.checkedout() - len(self._idle) <= 1)

    def _pick_up(self) -> OwnWire | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open_or_wait(self) -> OwnWire | None:
        with self._lock:
            if self._closed:
                raise ConnectionError("the store was closed meanwhile")
            # The pool counts: what got lost in an interrupt comes back to it by itself.
            pool: Any = self.engine.pool
            if pool.checkedout() + self._opening >= self._most:
                waiter = self._way.waiter()
                self._waiters.append(waiter)
            else:
                waiter = None
                self._opening += 1
        return self._open() if waiter is None else self._wait(waiter)

    def _open(self) -> OwnWire | None:
        try:
            return OwnWire(self._way.open(self.engine.raw_connection))
        except Exception as exc:
            if not self._is_shortage(exc):
                raise
            shortage = exc
        finally:
            self._make_room(opening=1)
        return self._share(shortage)

    def _share(self, shortage: Exception) -> OwnWire | None:
        """Wait for one of those that are there, if there are any."""
        with self._lock:
            pool: Any = self.engine.pool
            if self._closed or pool.checkedout() + self._opening <= 0:
                raise shortage
            waiter = self._way.waiter()
            self._waiters.append(waiter)
        try:
            return self._wait(waiter)
        except TimeoutError:
            raise shortage from None

    def _wait(self, waiter: Waiter) -> OwnWire | None:
        try:
            self._settle()
            wire: OwnWire | None = waiter.get(True, self._timeout_s)
            return wire
        except BaseException as exc:
            with self._lock:
                waits = waiter in self._waiters
                if waits:
                    self._waiters.remove(waiter)
            if not waits:  # it came too late for us
                wire = waiter.get(True, 0)
                self._make_room() if wire is None else self.give_back(wire)
            if isinstance(exc, queue.Empty):
                raise TimeoutError from exc
            raise

    def _settle(self) -> None:
        """Let those who wait have what is idle."""
        with self._lock:
            while self._waiters and (wire := self._pick_up()) is not None:
                self._waiters.popleft().put(wire)

    def _make_room(self, opening: int = 0) -> None:
        """There may be a connection less: let somebody who waits see whether to open one."""
        with self._lock:
            self._opening -= opening
            if self._waiters:
                self._waiters.popleft().put(None)

    def _connected(self, connection: Any, record: Any) -> None:
        record.info[TALK] = self._welcome(connection, record.driver_connection), time.monotonic()
