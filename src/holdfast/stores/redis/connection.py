"""Connections for threads: redis-py's own, one request at a time, used by its public calls.

redis-py connects, logs in, chooses the database, sends and reads. Its *client* is left out: that
repeats a request by itself when a connection breaks, and does not say so. Holdfast repeats only
where it knows what that means:

 1. No connection, or a request that could not be sent whole: nothing was done. If that was on
    a connection that had been idle, the request is sent once more on a new one.
 2. Sent, and the connection broke or nothing came in time: nobody knows. A request that only
    looks is sent once more, unless the server was silent for long; there is no doubt about it.
 3. An error reply: nothing was done; `protocol.Redirect` says whether to try elsewhere.

A server closes idle connections when it restarts, when its `timeout` is over, when it is told to.
So a connection is looked at before it is used, which takes a few microseconds and no trip.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redis.connection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Settings, shown
from holdfast.stores.spin import SpinWait, poll_of

MOST_IDLE = 32
# How long to look for an answer before the thread sleeps for it.
SPIN_S = 0.0002
FEW = 2


class Connection:
    """One connection. Whoever has taken it uses it alone."""

    def __init__(self, theirs: Any, where: str) -> None:
        self.where = where
        self.is_new = True  # it has not answered yet
        self.is_closed = False  # redis-py would open it again
        self._theirs = theirs
        self._poll = self._readable if poll_of(0) is not None else None

    @classmethod
    def open(cls, settings: Settings, address: Address) -> Connection:
        """Returns a new connection."""
        where, theirs = shown(address), None
        try:
            # Even to make one, redis-py opens a file.
            theirs = settings.connection(redis.connection, Retry(NoBackoff(), 0), address)
            theirs.connect()
        except (RedisError, OSError) as exc:
            if theirs is not None:
                cls(theirs, where).close()
            raise errors.not_connected(exc, where) from exc
        return cls(theirs, where)

    def exchange(self, request: bytes, count: int = 1, spin: SpinWait | None = None) -> list[Any]:
        """Send a request, and read its replies. After an error the connection is closed."""
        try:
            self._theirs.send_packed_command([request])
        except (RedisError, OSError) as exc:
            self.close()
            # Of several commands the first may have left when the last one did not.
            trouble = errors.not_sent if count == 1 else errors.no_answer
            raise trouble(exc, self.where) from exc
        try:
            if spin is not None:
                spin.look(self._poll)
            replies = [self._read() for _ in range(count)]
        except (RedisError, OSError) as exc:
            self.close()
            raise errors.no_answer(exc, self.where) from exc
        except BaseException:  # an interrupt: the reply would be the next one's
            self.close()
            raise
        self.is_new = False
        return replies

    def look(self, request: bytes) -> Any:
        """Send a request that changes nothing, and read its reply."""
        try:
            return self.exchange(request)[0]
        except OutcomeUnknown as trouble:
            raise errors.no_doubt(trouble) from trouble.__cause__

    def read_within(self, seconds: float) -> Any:
        """Returns the next reply, or raises `TimeoutError` if none comes within this time."""
        try:
            if self.is_closed or self._theirs.can_read(seconds):
                return self._read()
        except RedisTimeoutError as exc:
            raise TimeoutError("no reply in time") from exc
        except Exception as exc:
            # Another thread may close it: then redis-py fails in ways that it has no name for.
            if self.is_closed or isinstance(exc, RedisError):
                raise ConnectionResetError(str(exc)) from exc
            raise
        raise TimeoutError("no reply in time")

    def send(self, request: bytes) -> None:
        """Send a request, and leave the replies to whoever reads."""
        try:
            if not self.is_closed:
                self._theirs.send_packed_command([request])
        except Exception as exc:
            if self.is_closed or isinstance(exc, RedisError):
                raise ConnectionResetError(str(exc)) from exc
            raise

    def is_stale(self) -> bool:
        """Whether there is something to read on an idle connection: then the server closed it."""
        return self.is_closed or bool(self._readable(0))

    def close(self) -> None:
        """Close it."""
        self.is_closed = True
        with suppress(RedisError, OSError):
            self._theirs.disconnect()

    def _read(self) -> Any:
        """Returns a reply; an error is returned, too."""
        if self.is_closed:
            raise ConnectionResetError("the connection was closed")
        try:
            return self._theirs.read_response()
        except errors.REPLIES as reply:
            if not isinstance(reply, ResponseError):  # then redis-py has disconnected
                self.close()
            return errors.with_code(reply)

    def _readable(self, timeout_ms: int) -> Sequence[object]:
        """Returns something if there is something to read, or the connection broke."""
        try:
            return (self,) if self._theirs.can_read(0) else ()
        except (RedisError, OSError):
            return (self,)  # whoever reads will see why


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
            connection = self._take()
            try:
                return self._exchange(connection, request, count)
            except HoldfastError as trouble:
                self.drop_idle()  # what broke one has broken them all
                if tried or not errors.can_ask_again(trouble, looks, connection.is_new):
                    raise errors.no_doubt(trouble) if looks else trouble from trouble.__cause__
            tried = True

    def _exchange(self, connection: Connection, request: bytes, count: int) -> list[Any]:
        self._used.add(connection)
        try:
            # Of many requests the answers take long, and nobody waits for them: they are beats.
            replies = connection.exchange(request, count, self._spin if count <= FEW else None)
        finally:
            self._used.discard(connection)
        if self.closed or connection.is_closed or len(self._idle) >= MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)
        return replies

    def _take(self) -> Connection:
        while not self.closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect()
                self.where = connection.where
                return connection
            if not connection.is_stale():
                return connection
            connection.close()
        raise Unavailable("The connections to Redis were closed meanwhile.")

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
