"""Connections for threads: each request takes one that is idle, or a new one.

A server closes idle connections when it restarts, when its `timeout` is over, when it is told to.
So a connection is looked at before it is used, which takes a few microseconds and no trip; unless
it has answered just now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from holdfast.core.records import NEVER, Micros
from holdfast.errors import HoldfastError
from holdfast.stores.redis import errors
from holdfast.stores.redis.connection import Connection
from holdfast.stores.spin import SpinWait

MOST_IDLE = 32
# For so long after an answer a connection is used without a look.
TRUSTED_S = 0.005
# How long to look for an answer before the thread sleeps for it.
SPIN_S = 0.0002
FEW = 2


class ConnectionPool:
    """The idle connections to one server, and new ones when there is none."""

    def __init__(self, connect: Callable[[Micros], Connection]) -> None:
        self._connect = connect
        self._idle: deque[Connection] = deque()
        used = self._used = set[Connection]()
        self._spin = SpinWait(SPIN_S, lambda: len(used) <= 1)
        self.where = "?"  # whereto the newest one leads
        self.closed = False

    def exchange(
        self, request: bytes, count: int = 1, looks: bool = False, by: Micros = NEVER
    ) -> list[Any]:
        """Send a request and read its replies. `looks`: it changes nothing."""
        # Of many requests the answers take long, and nobody waits for them: they are beats.
        spin = self._spin if count <= FEW else None
        used, tried = self._used, False
        while True:
            connection = self._take(by)
            used.add(connection)
            try:
                replies = connection.exchange(request, count, by, spin)
            except HoldfastError as trouble:
                self.drop_idle()  # what broke one has broken them all
                if tried or not errors.can_ask_again(trouble, looks, connection.is_new):
                    raise errors.no_doubt(trouble) if looks else trouble from trouble.__cause__
                tried = True
                continue
            finally:
                used.discard(connection)
            if self.closed or connection.is_closed or len(self._idle) >= MOST_IDLE:
                connection.close()
            else:
                connection.idle_since = monotonic()
                self._idle.append(connection)
            return replies

    def _take(self, by: Micros) -> Connection:
        while not self.closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect(by)
                self.where = connection.where
                return connection
            if monotonic() - connection.idle_since < TRUSTED_S or not connection.is_stale():
                return connection
            connection.close()
        raise errors.closed_meanwhile()

    def drop_idle(self) -> None:
        """Close all connections that nobody uses."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def close(self) -> None:
        """Close all connections, and connect no more."""
        self.closed = True
        self.drop_idle()

    def forget(self) -> list[Connection]:
        """Let go of the connections without touching them."""
        connections = list(self._idle)
        self._idle.clear()
        return connections
