"""A request that gets no answer must not hang for longer than its caller can use an answer.

libpq and most drivers have no timeout for an answer, and a server that is frozen, or a network
that swallows packets, gives none. On an event loop the call is cancelled. In a thread the
connection's socket is shut down under the driver when its time is up: the call that waits on it
fails, as with any broken connection.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.stores.sql.errors import is_foreign
from holdfast.stores.waiting.handles import started

# With nothing pending, the thread stays for so long.
LINGER_S = 5.0


class SocketTimeouts:
    """Shuts down the sockets of blocking calls that take too long. One thread, while needed."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._pending: dict[int, tuple[float, Any]] = {}  # until when, and the driver's connection
        self._next = 0
        self._looks_at: float | None = None  # when the thread looks next; None: there is none
        self._closed = False

    @contextmanager
    def until(self, ends_at: float, connection: Any) -> Iterator[None]:
        """While a call on the driver's connection is under way. If it has not ended by then (on
        Python's monotonic clock) it fails with a TimeoutError."""
        number = self._start(ends_at, connection)
        try:
            yield
        except Exception as exc:
            if number not in self._pending and not is_foreign(exc):
                raise TimeoutError from exc
            raise
        finally:
            with self._changed:
                self._pending.pop(number, None)

    def close(self) -> None:
        """Let the thread end as soon as nothing is pending: clients may come and go quickly."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _start(self, ends_at: float, connection: Any) -> int:
        with self._changed:
            self._next = number = self._next + 1
            self._pending[number] = ends_at, connection
            start = self._looks_at is None
            if self._looks_at is None or ends_at < self._looks_at:
                self._looks_at = ends_at
                self._changed.notify()
        if start and not started(self._watch, "holdfast-io-timeout"):
            with self._changed:
                self._looks_at = None  # the next call tries again
                del self._pending[number]
            raise ConnectionError("the process can start no new thread")
        return number

    def _watch(self) -> None:
        idle = False
        with self._changed:
            while self._pending or not (idle or self._closed):
                now = time.monotonic()
                self._shut_down_overdue(now)
                idle = not self._pending
                deadlines = (ends_at for ends_at, _ in self._pending.values())
                self._looks_at = min(deadlines, default=now + LINGER_S)
                self._changed.wait(self._looks_at - now)
            self._looks_at = None

    def _shut_down_overdue(self, now: float) -> None:
        for number, (ends_at, connection) in list(self._pending.items()):
            if ends_at <= now:
                del self._pending[number]
                shut_down(connection)


def shut_down(connection: Any) -> None:
    """Break a driver's connection from outside, so that the call that waits on it fails."""
    with suppress(Exception):  # it may be closing at this very moment
        # psycopg and others tell their socket's number; PyMySQL does not.
        if not hasattr(connection, "fileno"):
            connection = connection._sock
        same = socket.socket(fileno=connection.fileno())  # not a copy: none may be left for one
        try:
            same.shutdown(socket.SHUT_RDWR)
        finally:
            same.detach()
