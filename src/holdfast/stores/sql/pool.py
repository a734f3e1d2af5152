# Made from pool_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Connections of our own for statements. `engine_pool` has the same for those of an application."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, MutableSet
from contextlib import suppress
from typing import Any

from holdfast.stores.sql.connections import OwnedConnection
from holdfast.stores.sql.errors import PoolIsEmpty

# A connection that is older than this is replaced: something on the way may have cut it.
RECYCLE_S = 1800
# A call that waits for a connection looks this often by itself: the call that was notified may have
# been interrupted.
LOOK_AGAIN_S = 1.0


class OwnedPool:
    """Opens up to `size` connections as they are needed, and keeps them."""

    def __init__(
        self,
        connection: Callable[[], OwnedConnection],
        opened: Callable[[OwnedConnection, float], None],
        is_shortage: Callable[[Exception], bool],
        size: int,
    ) -> None:
        self._new_connection = connection
        self._open_connection = opened
        self._is_shortage = is_shortage
        self._size = size
        self._lock: Any = threading.RLock()
        self._changed: Any = threading.Condition(self._lock)
        self._idle: list[OwnedConnection] = []
        # All that are open or being opened. If an interrupt loses one on its way, its place is free
        # again when it is collected. On an event loop they are kept instead: aiomysql complains
        # about a connection that is collected after the end of its loop.
        self._all: MutableSet[OwnedConnection] = weakref.WeakSet()
        self._waiting: set[object] = set()  # those who wait for a change, or are about to
        self._closed = False
        self._broke_at = 0.0
        self._process = os.getpid()

    def idle(self) -> OwnedConnection | None:
        """Returns a connection that is open and that nobody else uses or waits for, if there is
        one. Most calls get theirs here, without a lock."""
        while (connection := None if self._is_awaited() else self._pop()) is not None:
            if self._is_usable(connection):
                return connection
            self.discard(connection)
        return None

    def _is_awaited(self) -> bool:
        """Whether all idle connections are for the calls that wait. Otherwise a thread that comes
        back at once would get its connection again before they are awake, time after time."""
        waiting = self._waiting
        return bool(waiting) and len(waiting) >= len(self._idle)

    def _pop(self) -> OwnedConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _is_usable(self, connection: OwnedConnection) -> bool:
        fresh = connection.opened_at > max(self._broke_at, time.monotonic() - RECYCLE_S)
        return fresh and not connection.is_closed_by_server()

    def acquire(self, ends_at: float) -> OwnedConnection:
        """Returns a connection that nobody else uses."""
        shortage: Exception | None = None
        while True:
            connection = self._reserve(shortage, ends_at)
            if connection.opened_at:
                if self._is_usable(connection):
                    return connection
                self.discard(connection)
                continue
            try:
                self._open_connection(connection, ends_at)
                return connection
            except BaseException as exc:
                self.discard(connection)
                if not isinstance(exc, Exception) or not self._is_shortage(exc):
                    raise
                shortage = exc

    def _reserve(self, shortage: Exception | None, ends_at: float) -> OwnedConnection:
        """Returns an idle connection, or a new one that has yet to be opened. In a shortage of
        connections those that are open are waited for, if there are any."""
        me = object()
        with self._lock:
            if shortage is not None and not self._all:
                raise shortage
            comes_later = self._is_awaited()
            try:
                # Before the look: a call that gives a connection back after the look notifies us.
                self._waiting.add(me)
                while not self._closed:
                    if not comes_later and (connection := self._pop()) is not None:
                        return connection
                    if not self._all or (shortage is None and len(self._all) < self._size):
                        connection = self._new_connection()
                        self._all.add(connection)
                        return connection
                    left_s = ends_at - time.monotonic()
                    if left_s <= 0:
                        raise shortage or PoolIsEmpty()
                    self._wait(min(left_s, LOOK_AGAIN_S))
                    comes_later = False
            except BaseException:
                self._changed.notify()  # the change may have been meant for us
                raise
            finally:
                self._waiting.discard(me)
        raise ConnectionError("the store was closed meanwhile")

    def _wait(self, seconds: float) -> None:
        """Wait for a change, or for a time."""
        self._changed.wait(seconds)

    def release(self, connection: OwnedConnection) -> None:
        """Take a connection back that is in good order. Never raises: what was answered stays
        answered."""
        self._idle.append(connection)  # before anything that can be cancelled: no place is lost
        if self._waiting:
            with self._lock:
                self._changed.notify()
        if self._closed:
            self.close()

    def discard(self, connection: OwnedConnection, *, broken: bool = False) -> None:
        """Close a connection of which nobody knows what state it is in, or that broke."""
        if broken:  # the others may have been cut with it
            self._broke_at = time.monotonic()
        if connection.opened_at:  # else it may still be in use by a thread that opens it
            connection.terminate()
        self._all.discard(connection)
        with self._lock:
            self._changed.notify()

    def open_apart(self, ends_at: float) -> OwnedConnection:
        """Returns a connection that the pool forgets. It is a new one: those who run statements
        keep theirs, also where no more can be had."""
        connection = self._new_connection()
        self._open_connection(connection, ends_at)
        return connection

    def close(self) -> None:
        """Close what is idle now, and the others when they come back."""
        self._closed = True
        while (connection := self._pop()) is not None:
            with suppress(Exception):
                connection.close()
            self.discard(connection)
        with self._lock:
            self._changed.notify_all()

    def abandon(self) -> Any:
        """Returns what a forked child must keep and leave alone, because it is its parent's."""
        self._closed = True
        left = list(self._all)
        self._idle = []
        return left
