"""A request that gets no answer must not hang for ever.

Neither libpq nor most drivers have a timeout for an answer, and a server that is frozen,
or a network that swallows packets, gives none. So after a time the connection's socket is
shut down, under the driver: the call that waits on it fails, as with any broken connection.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

# How often, within the time allowed, the thread looks.
LOOKS = 4


class Limits(Protocol):
    """Ends calls that take too long."""

    def on(self, connection: Any) -> AbstractContextManager[None]:
        """While this lasts, the driver's connection is cut when its time is up."""

    def close(self) -> None:
        """There will be no more calls."""


class Deadlines:
    """Shuts down the sockets of blocking calls that take too long. One thread, while needed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[float, Any]] = {}  # in the order of their deadlines
        self._next = 0
        self._running = False
        self._closed = threading.Event()

    def on(self, connection: Any) -> Deadline:
        """While this lasts, the connection is cut when its time is up."""
        return Deadline(self, connection)

    def start(self, connection: Any) -> int:
        """From now on; a number to stop it by."""
        with self._lock:
            self._next = number = self._next + 1
            self._pending[number] = time.monotonic() + self._seconds, connection
            start, self._running = not self._running, True
        if start:
            self._start_watching(number)
        return number

    def _start_watching(self, number: int) -> None:
        try:
            threading.Thread(target=self._watch, name="holdfast-deadlines", daemon=True).start()
        except RuntimeError as exc:  # no thread to be had: the next call tries again
            with self._lock:
                self._running = False
                self._pending.pop(number, None)
            raise ConnectionError(str(exc)) from exc

    def stop(self, number: int) -> None:
        """It was in time."""
        with self._lock:
            self._pending.pop(number, None)

    def close(self) -> None:
        """Let the thread end as soon as nothing is pending: clients may come and go quickly."""
        self._closed.set()

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
                self._cut(time.monotonic())

    def _cut(self, now: float) -> None:
        for number, (ends_at, connection) in list(self._pending.items()):
            if ends_at > now:
                return
            del self._pending[number]
            sever(connection)


class Deadline:
    """One call."""

    __slots__ = ("_connection", "_deadlines", "_number")

    def __init__(self, deadlines: Deadlines, connection: Any) -> None:
        self._deadlines = deadlines
        self._connection = connection

    def __enter__(self) -> None:
        self._number = self._deadlines.start(self._connection)

    def __exit__(self, *exc: object) -> None:
        self._deadlines.stop(self._number)


class LoopDeadlines:
    """The same for calls on an event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    @contextmanager
    def on(self, connection: Any) -> Iterator[None]:
        """While this lasts, the connection is cut when its time is up."""
        timer = asyncio.get_running_loop().call_later(self._seconds, sever, connection)
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """There is nothing to end."""


def sever(connection: Any) -> None:
    """Break a driver's connection from outside, so that whoever waits on it is told."""
    with suppress(Exception):  # it may be closing at this very moment
        if hasattr(connection, "fileno"):
            _shut_down(connection.fileno())
        elif getattr(connection, "_sock", None) is not None:
            _shut_down(connection._sock.fileno())
        else:
            discard(connection)


def discard(connection: Any) -> None:
    """Close a driver's connection without a word to the server, and without waiting."""
    if hasattr(connection, "pgconn"):
        connection.pgconn.finish()
    elif hasattr(connection, "terminate"):
        connection.terminate()
    else:
        connection.close()


def cut_off(connection: Any) -> None:
    """Close the socket of a connection (aiomysql's) whose event loop is gone: the driver can no
    longer, and would say so when it is collected."""
    connection._writer.get_extra_info("socket")._sock.close()
    connection._writer = None


def _shut_down(fileno: int) -> None:
    same = socket.socket(fileno=fileno)  # not a copy: there may be no descriptor left for one
    try:
        same.shutdown(socket.SHUT_RDWR)
    finally:
        same.detach()
