"""Talking to Redis over redis-py's connections, but without its client in between.

redis-py connects, logs in and chooses the database. From then on its socket is ours: one
write and one read per request, parsed by hiredis. That is most of the speed, and it keeps
redis-py from sending a request again by itself. Who sends again here knows why:

 1. No connection, or a request that could not be sent whole: nothing was done. If that was on
    a connection that had been idle, it is tried once more on a new one.
 2. Sent, and the connection broke or nothing came in time: nobody knows. What only looks is
    asked once more, unless the server was silent for long; and there is no doubt about it.
 3. An error reply: nothing was done; `routing.Redirect` says whether to try elsewhere.

A server hangs up on idle connections when it restarts, when its `timeout` is over, when it is
told to. So a connection is looked at before it is used, which takes a microsecond.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import hiredis
import redis.connection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Settings, shown
from holdfast.stores.spin import SpinWait, poll_of

CHUNK = 16384
MOST_IDLE = 32
# For so long an answer is looked for, before it is slept for.
SPIN_S = 0.0002
FEW = 2


class Connection:
    """One connection. Whoever has taken it talks on it alone."""

    def __init__(self, settings: Settings, address: Address) -> None:
        self.where = shown(address)
        self._connection: Any = None
        self.is_new = True  # it has not answered yet
        try:
            # Even to make one, redis-py opens a file.
            self._connection = settings.connection(redis.connection, Retry(NoBackoff(), 0), address)
            self._connection.connect()
        except (RedisError, OSError) as exc:
            self.close()
            raise errors.not_connected(exc, self.where) from exc
        self._socket = self._connection._sock
        self._poll = poll_of(self._socket.fileno())
        self._reader = hiredis.Reader(replyError=ResponseError)
        self.set_timeout(settings.timeout_s)

    @classmethod
    def open(cls, settings: Settings, address: Address) -> Connection:
        """Returns a new connection."""
        return cls(settings, address)

    def exchange(self, request: bytes, count: int = 1, spin: SpinWait | None = None) -> list[Any]:
        """Send a request, and read its replies. After an error the line is closed."""
        try:
            self._socket.sendall(request)
        except OSError as exc:
            self.close()
            # Of several commands the first may have left when the last one did not.
            trouble = errors.not_sent if count == 1 else errors.no_answer
            raise trouble(exc, self.where) from exc
        try:
            if spin is not None:
                spin.look(self._poll)
            gets = self._reader.gets
            replies: list[Any] = []
            while len(replies) < count:
                self._hear()
                while (reply := gets()) is not False:
                    replies.append(reply)
            self.is_new = False
            return replies
        except (OSError, hiredis.HiredisError) as exc:
            self.close()
            raise errors.no_answer(exc, self.where) from exc
        except BaseException:  # an interrupt: the reply would be the next one's
            self.close()
            raise

    def look(self, request: bytes) -> Any:
        """Send a request that only looks, and read its reply."""
        try:
            return self.exchange(request)[0]
        except OutcomeUnknown as trouble:
            raise errors.no_doubt(trouble) from trouble.__cause__

    def read(self) -> Any:
        """The next reply."""
        while (reply := self._reader.gets()) is False:
            self._hear()
        return reply

    def read_within(self, seconds: float) -> Any:
        """The next reply, or `TimeoutError` if none comes for so long."""
        self._socket.settimeout(seconds)
        return self.read()

    def _hear(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise TimeoutError("no reply in time") from None
        if not data:
            raise ConnectionResetError("the connection was closed by the server")
        self._reader.feed(data)

    def send(self, request: bytes) -> None:
        """Send, and leave the replies to whoever reads."""
        self._socket.sendall(request)

    def set_timeout(self, seconds: float) -> None:
        """How long one may wait.

        Python's own timeout asks the kernel before every call; the kernel's needs no asking.
        """
        if isinstance(self._socket, ssl.SSLSocket) or sys.platform == "win32":
            self._socket.settimeout(seconds)
            return
        self._socket.settimeout(None)
        timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, timeval)

    def is_stale(self) -> bool:
        """Whether an idle line has something to say, which is that it is closed. Asks only the
        kernel."""
        try:
            if self._poll is not None:
                return bool(self._poll(0))
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Hang up."""
        with suppress(RedisError, OSError):
            if self._connection is not None:
                self._connection.disconnect()


class ConnectionPool:
    """The idle connections to one server, and new ones when there is none."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: deque[Connection] = deque()
        used = self._used = set[Connection]()
        self._spin = SpinWait(SPIN_S, lambda: len(used) <= 1)
        self.where = "?"  # whereto the newest one leads
        self.closed = False

    def exchange(self, request: bytes, count: int = 1, looks: bool = False) -> list[Any]:
        """Send a request and read its replies. `looks`: it changes nothing."""
        tried = False
        while True:
            line = self._take()
            try:
                return self._exchange(line, request, count)
            except HoldfastError as trouble:
                self.drop_idle()  # what broke one has broken them all
                if tried or not errors.can_ask_again(trouble, looks, line.is_new):
                    raise errors.no_doubt(trouble) if looks else trouble from trouble.__cause__
            tried = True

    def _exchange(self, line: Connection, request: bytes, count: int) -> list[Any]:
        self._used.add(line)
        try:
            # Of many requests the answers take long, and nobody waits for them: they are beats.
            replies = line.exchange(request, count, self._spin if count <= FEW else None)
        finally:
            self._used.discard(line)
        if self.closed or len(self._idle) >= MOST_IDLE:
            line.close()
        else:
            self._idle.append(line)
        return replies

    def _take(self) -> Connection:
        while not self.closed:
            try:
                line = self._idle.pop()
            except IndexError:
                line = self._connect()
                self.where = line.where
                return line
            if not line.is_stale():
                return line
            line.close()
        raise Unavailable("The connections to Redis were closed meanwhile.")

    def drop_idle(self) -> None:
        """Hang up all that nobody uses."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def close(self) -> None:
        """Hang up, and connect no more."""
        self.closed = True
        self.drop_idle()

    def forget(self) -> list[Connection]:
        """Let go of the lines without touching them."""
        lines = list(self._idle)
        self._idle.clear()
        return lines
