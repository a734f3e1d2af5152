# Made from connection_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""One connection to one server: redis-py's own, used by its public calls, one request at a time.

redis-py connects, logs in, chooses the database, sends and reads. Its *client* is left out: that
repeats a request by itself when a connection breaks, and does not say so. Holdfast repeats only
where it knows what that means:

 1. No connection, or a request that could not be sent whole: nothing was done. If that was on
    a connection that had been idle, the request is sent once more on a new one.
 2. Sent, and the connection broke or nothing came in time: nobody knows. A request that only
    looks is sent once more, unless the server was silent for long; there is no doubt about it.
 3. An error reply: nothing was done; `protocol.Redirect` says whether to try elsewhere.

Every request has a time by which its answer must be there (`stores.deadlines`). A connection on
which none came by then is closed: what comes later would be taken for the next one's.

Threads send all their requests like this. Tasks look for servers and listen like this; what they
ask besides goes through `pipeline`, which many of them share.
"""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any

import redis.connection as theirs_module
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from holdfast.core.records import NEVER, Micros
from holdfast.errors import OutcomeUnknown
from holdfast.stores.deadlines import not_sent, seconds_left, seconds_to_send
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Settings, shown
from holdfast.stores.spin import poll_of

# A connection is opened with a time-out of at least this, and keeps it.
SHORTEST_S = 0.25
# A call may end so much later than it should. If the socket's own time-out is as near as that,
# it is good enough, and the socket need not be looked at first. (For such a look threads would
# wait for each other.)
NEAR_S = 0.1
# A sender waits for so long until the thread that reads from the same TLS connection lets it.
# That thread reads what is there already: if it takes longer, the server stopped amid a reply.
MOST_TURN_S = 1.0


class Connection:
    """One connection. The thread or task that has taken it uses it alone; only that of a listener
    is read by one thread or task and written to by others."""

    def __init__(self, theirs: Any, where: str, timeout_s: float) -> None:
        self.where = where
        self.timeout_s = timeout_s  # how long an answer may take at most
        self.is_new = True  # it has not answered yet
        self.is_closed = False  # redis-py would open it again
        self.theirs = theirs
        self.socket_s = timeout_s  # the time-out of its socket
        self.idle_since = 0.0  # on the monotonic clock, while it is in a pool
        # One thread may send while another one reads. OpenSSL does not allow both at the same
        # moment: records would be damaged, or the process would crash.
        self._turn: Lock | None = None
        self._poll = self._readable if poll_of(0) is not None else None

    @classmethod
    def open(cls, settings: Settings, address: Address, by: Micros = NEVER) -> Connection:
        """Returns a new connection."""
        seconds = seconds_to_send(by, settings.timeout_s)
        where, theirs = shown(address), None
        try:
            # Even to make one, redis-py opens a file.
            theirs = settings.connection(
                theirs_module, Retry(NoBackoff(), 0), address, max(seconds, SHORTEST_S)
            )
            theirs.connect()
        except BaseException as exc:
            if theirs is not None:
                cls(theirs, where, seconds).close()
            if isinstance(exc, (RedisError, OSError)):
                raise errors.not_connected(exc, where) from exc
            raise
        connection = cls(theirs, where, settings.timeout_s)
        connection.socket_s = max(seconds, SHORTEST_S)
        if settings.tls:
            connection._turn = Lock()
        return connection

    def look(self, request: bytes, by: Micros = NEVER) -> Any:
        """Send a request that changes nothing, and read its reply."""
        try:
            return (self.exchange(request, 1, by))[0]
        except OutcomeUnknown as trouble:
            raise errors.no_doubt(trouble) from trouble.__cause__

    def exchange(
        self, request: bytes, count: int = 1, by: Micros = NEVER, spin: Any = None
    ) -> list[Any]:
        """Send a request, and read its replies. After an error the connection is closed."""
        seconds = min(seconds_left(by), self.timeout_s)
        if seconds <= 0:
            self.close()
            raise not_sent()
        try:
            self.theirs.send_packed_command([request], check_health=False)
        except (RedisError, OSError) as exc:
            self.close()
            # Of several commands the first may have left when the last one did not.
            trouble = errors.not_sent if count == 1 else errors.no_answer
            raise trouble(exc, self.where) from exc
        try:
            seen = spin is not None and spin.look(self._poll)
            replies = self._read_all(count, seconds, seen)
        except (RedisError, OSError) as exc:
            self.close()
            raise errors.no_answer(exc, self.where) from exc
        except BaseException:  # an interrupt: the reply would be the next one's
            self.close()
            raise
        self.is_new = False
        return replies

    def read_within(self, seconds: float) -> Any:
        """Returns the next reply, or raises `TimeoutError` if none comes within this time."""
        reply = None
        try:
            if self._turn is not None:
                reply = self._read_in_turn(self._turn, seconds)
            elif self.is_closed or self.theirs.can_read(seconds):
                reply = self._read()
        except (RedisError, OSError) as exc:
            raise ConnectionResetError(str(exc)) from exc
        except Exception as exc:
            # Another thread may close it: then redis-py fails in ways that it has no name for.
            if not self.is_closed:
                raise
            raise ConnectionResetError(str(exc)) from exc
        if reply is None:
            raise TimeoutError("no reply in time")
        return reply

    def send(self, request: bytes) -> None:
        """Send a request, and leave the replies to the one that reads."""
        if self.is_closed:
            raise ConnectionResetError("the connection was closed")
        try:
            if self._turn is not None:
                self._send_in_turn(self._turn, request)
            else:
                self.theirs.send_packed_command([request], check_health=False)
        except (RedisError, OSError) as exc:
            self.close()  # redis-py would open it again, and the reader would hear nothing
            raise ConnectionResetError(str(exc)) from exc

    def close(self) -> None:
        """Close it."""
        self.is_closed = True
        with suppress(RedisError, OSError):
            # `nowait`, by position: the blocking one of redis-py before 7.2 knows no name for it.
            self.theirs.disconnect(True)

    def let_go(self) -> None:
        """In a forked child: give up our copy of the parent's connection. It would stay open when
        the parent is gone."""
        self.theirs.disconnect()  # which shuts nothing down in another process

    def _read(self, within: float | None = None) -> Any:
        """Returns a reply, or None if none came within this time; an error is returned, too."""
        if self.is_closed:
            raise ConnectionResetError("the connection was closed")
        try:
            return self.theirs.read_response()
        except errors.REPLIES as reply:
            if not isinstance(reply, ResponseError):  # then redis-py has disconnected
                self.close()
            return errors.with_code(reply)

    def _read_in_turn(self, turn: Lock, seconds: float) -> Any:
        """Returns a reply, or None if none came within this time. Waits without the turn."""
        ends_at = monotonic() + seconds
        while True:
            with turn:
                if self.is_closed or self.theirs.can_read(0):
                    return self._read()
            left = ends_at - monotonic()
            if left <= 0:
                return None
            _wait_for(self.theirs._sock, left)

    def _send_in_turn(self, turn: Lock, request: bytes) -> None:
        if not turn.acquire(timeout=MOST_TURN_S):
            raise TimeoutError("the server has stopped amid a reply")
        try:
            self.theirs.send_packed_command([request], check_health=False)
        finally:
            turn.release()

    def _read_all(self, count: int, seconds: float, seen: bool) -> list[Any]:
        """Returns so many replies. `seen`: there is something to read already."""
        if count == 1 and (seen or abs(self.socket_s - seconds) <= NEAR_S):
            return [self._read()]
        ends_at = monotonic() + seconds
        replies: list[Any] = []
        while len(replies) < count:
            if not seen and not self.theirs.can_read(max(0.0, ends_at - monotonic())):
                raise TimeoutError(f"no reply within {seconds:.3g} s")
            seen = False
            replies.append(self._read())
        return replies

    def is_stale(self) -> bool:
        """Whether there is something to read on an idle connection: the server closed it."""
        return self.is_closed or bool(self._readable(0))

    def _readable(self, timeout_ms: int) -> Sequence[object]:
        """Returns something if there is something to read, or the connection broke."""
        try:
            return (self,) if self.theirs.can_read(0) else ()
        except (RedisError, OSError):
            return (self,)  # the read will show why


def _wait_for(socket: Any, seconds: float) -> None:
    """Wait until there is something to read, as far as the system knows, or the time is over.
    No `epoll`, which needs a file; and no `select`, if possible, which knows few of them."""
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        selector.register(socket, selectors.EVENT_READ)
        selector.select(seconds)
