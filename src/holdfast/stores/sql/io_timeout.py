"""A request that gets no answer must not hang for ever.

libpq and most drivers have no timeout for an answer, and a server that is frozen, or a network
that swallows packets, gives none. So when its time is up, the connection's socket is shut down
under the driver: the call that waits on it fails, as with any broken connection.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from typing import Any

# How often, within the time allowed, the thread looks.
LOOKS = 4


class SocketTimeouts:
    """Shuts down the sockets of blocking calls that take too long. One thread, while needed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[float, Any]] = {}  # in the order of their deadlines
        self._next = 0
        self._running = False
        self._closed = threading.Event()

    def start(self, connection: Any) -> int:
        """From now on the driver's connection has its time. Returns a number to stop it by."""
        with self._lock:
            self._next = number = self._next + 1
            self._pending[number] = time.monotonic() + self._seconds, connection
            start, self._running = not self._running, True
        if start:
            self._start_watching(number)
        return number

    def stop(self, number: int) -> None:
        """The call has ended in time."""
        with self._lock:
            self._pending.pop(number, None)

    def close(self) -> None:
        """Let the thread end as soon as nothing is pending: clients may come and go quickly."""
        self._closed.set()

    def _start_watching(self, number: int) -> None:
        try:
            threading.Thread(target=self._watch, name="holdfast-io-timeout", daemon=True).start()
        except RuntimeError as exc:  # there is no thread left: the next call tries again
            with self._lock:
                self._running = False
                self._pending.pop(number, None)
            raise ConnectionError(str(exc)) from exc

    def _watch(self) -> None:
        idle, nap_s = 0, self._seconds / LOOKS
        while True:
            if self._closed.wait(nap_s) and self._pending:
                time.sleep(nap_s)
            with self._lock:
                idle = 0 if self._pending else idle + 1
                if idle > LOOKS or (idle and self._closed.is_set()):
                    self._running = False
                    return
                self._shut_down_overdue(time.monotonic())

    def _shut_down_overdue(self, now: float) -> None:
        for number, (ends_at, connection) in list(self._pending.items()):
            if ends_at > now:
                return
            del self._pending[number]
            shut_down(connection)


class LoopTimeouts:
    """The same for calls on an event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def start(self, connection: Any) -> asyncio.TimerHandle:
        """From now on the driver's connection has its time. Returns the timer."""
        return asyncio.get_running_loop().call_later(self._seconds, shut_down, connection)

    def stop(self, timer: asyncio.TimerHandle) -> None:
        """The call has ended in time."""
        timer.cancel()

    def close(self) -> None:
        """There is nothing to end."""


def shut_down(connection: Any) -> None:
    """Break a driver's connection from outside, so that the call that waits on it fails."""
    with suppress(Exception):  # it may be closing at this very moment
        if hasattr(connection, "fileno"):
            _shut_down_socket(connection.fileno())
        elif getattr(connection, "_sock", None) is not None:  # PyMySQL
            _shut_down_socket(connection._sock.fileno())
        elif hasattr(connection, "terminate"):  # asyncpg
            connection.terminate()
        else:  # aiomysql
            connection.close()


def _shut_down_socket(fileno: int) -> None:
    same = socket.socket(fileno=fileno)  # not a copy: there may be no descriptor left for one
    try:
        same.shutdown(socket.SHUT_RDWR)
    finally:
        same.detach()
