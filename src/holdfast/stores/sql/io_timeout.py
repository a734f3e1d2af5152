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
from contextlib import suppress
from typing import Any

from holdfast.stores.sql.errors import is_foreign
from holdfast.stores.waiting.handles import started

# With nothing pending, the thread stays for so long.
LINGER_S = 5.0


class SocketTimeouts:
    """Shuts down the sockets of blocking calls that take too long. One thread, while needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._pending: set[PendingCall] = set()
        self._looks_at: float | None = None  # when the thread looks next; None: there is none
        self._closed = False

    def close(self) -> None:
        """Let the thread end as soon as nothing is pending: clients may come and go quickly."""
        with self._lock:
            self._closed = True
            self._changed.notify()

    def add(self, call: PendingCall) -> None:
        """Watch a call that begins."""
        with self._lock:
            self._pending.add(call)
            start = self._looks_at is None
            if self._looks_at is None or call.ends_at < self._looks_at:
                self._looks_at = call.ends_at
                self._changed.notify()
        if start and not started(self._watch, "holdfast-io-timeout"):
            with self._lock:
                self._looks_at = None  # the next call tries again
                self._pending.discard(call)
            raise ConnectionError("the process can start no new thread")

    def end(self, call: PendingCall) -> bool:
        """Leave a call alone that has ended. Returns False if its socket was shut down before."""
        with self._lock:
            in_time = call in self._pending
            self._pending.discard(call)
            return in_time

    def _watch(self) -> None:
        idle = False
        with self._lock:
            while self._pending or not (idle or self._closed):
                now = time.monotonic()
                self._shut_down_overdue(now)
                idle = not self._pending
                deadlines = (call.ends_at for call in self._pending)
                self._looks_at = min(deadlines, default=now + LINGER_S)
                self._changed.wait(self._looks_at - now)
            self._looks_at = None

    def _shut_down_overdue(self, now: float) -> None:
        for call in list(self._pending):
            if call.ends_at <= now:
                self._pending.discard(call)
                shut_down(call.connection)


class PendingCall:
    """The context of a blocking call on the driver's connection. If the call has not ended by
    `ends_at` (on Python's monotonic clock) it fails with a TimeoutError."""

    __slots__ = ("_timeouts", "connection", "ends_at")

    def __init__(self, timeouts: SocketTimeouts, ends_at: float, connection: Any) -> None:
        self._timeouts = timeouts
        self.ends_at = ends_at
        self.connection = connection

    def __enter__(self) -> None:
        self._timeouts.add(self)

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        in_time = self._timeouts.end(self)
        if isinstance(exc, Exception) and not in_time and not is_foreign(exc):
            raise TimeoutError from exc


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
