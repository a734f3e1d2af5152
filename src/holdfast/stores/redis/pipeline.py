"""Connections for an event loop: all tasks share one, and what they ask in one turn of the loop
leaves in one write.

redis-py connects and logs in; then its transport gets our protocol, which is what makes the sharing
possible (docs/adr/0010). Replies come in the order of the requests, so a queue of futures is all
there is to it. A request whose task was cancelled is still answered, and must not be forgotten:
else all later answers would be handed to the wrong task.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

import hiredis
import redis.asyncio.connection
from msgspec import Struct
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.stores.async_adapters import DRAIN_S, drain
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Settings, shown
from holdfast.stores.spin import Poll, poll_of

_Reply = Future[list[Any]]

# So many requests leave without waiting for more: the server works on them while the other
# tasks of this turn prepare theirs.
ENOUGH = 12


class Request(Struct, eq=False):
    """What was asked, until all its replies have come."""

    count: int
    since: float  # on the monotonic clock
    future: _Reply
    replies: list[Any] = []
    settled: bool = False


class Connection(asyncio.Protocol):
    """One connection for many tasks of one loop."""

    def __init__(self, where: str, timeout_s: float) -> None:
        self.where = where
        self.is_new = True  # it has not answered yet
        self.broken: Exception | None = None
        self.on_push: Callable[[Any], None] | None = None  # for a connection that only listens
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ResponseError)
        self._waiting: deque[Request] = deque()
        self._unsent: list[bytes] = []  # the requests of the last ones that wait
        self._watch: asyncio.TimerHandle | None = None
        self._transport: Any = None
        self._poll: Poll | None = None
        self._theirs: Any = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(cls, settings: Settings, address: Address) -> Connection:
        """Returns a new connection."""
        connection = cls(shown(address), settings.timeout_s)
        retry = Retry(NoBackoff(), 0)
        theirs = None
        try:
            # Even to make one, redis-py opens a file.
            theirs = settings.connection(redis.asyncio.connection, retry, address)
            await theirs.connect()
        except (RedisError, OSError) as exc:
            if theirs is not None:
                await theirs.disconnect(nowait=True)
            raise errors.not_connected(exc, connection.where) from exc
        connection._take_over(theirs)
        return connection

    def _take_over(self, theirs: Any) -> None:
        self._theirs = theirs
        self._transport = theirs._writer.transport
        self._transport.set_protocol(self)
        socket = self._transport.get_extra_info("socket")
        self._poll = None if socket is None else poll_of(socket.fileno())

    def usable(self) -> bool:
        """Whether it can be used now. The loop may not have noticed yet that the server hung up:
        then there is something to read, although nothing was asked. Asks only the kernel."""
        if self.broken is None and not self._waiting and self._poll is not None and self._poll(0):
            self._break(ConnectionResetError("the connection was closed by the server"))
        return self.broken is None

    # --- asking -----------------------------------------------------------------------------

    async def look(self, data: bytes) -> Any:
        """Send a request that changes nothing, and get its reply."""
        try:
            return (await self.exchange(data))[0]
        except OutcomeUnknown as trouble:
            raise errors.no_doubt(trouble) from trouble.__cause__

    async def exchange(self, data: bytes, count: int = 1) -> list[Any]:
        """Send a request and get its replies."""
        request = self.ask(data, count)
        try:
            return await request.future
        except asyncio.CancelledError:
            await self.settle(request)
            raise

    def ask(self, data: bytes, count: int = 1) -> Request:
        """Send a request. Who is cancelled while it awaits the replies has to `settle` it."""
        if self.broken is not None:
            raise errors.not_sent(self.broken, self.where) from self.broken
        loop, waiting = self._loop, self._waiting
        now = monotonic()
        request = Request(count, now, Future(loop=loop))
        waiting.append(request)
        if len(waiting) == 1:
            self._transport.write(data)
            if self._watch is None:
                self._watch_from(now)
            return request
        unsent = self._unsent
        unsent.append(data)
        if len(unsent) == 1:
            loop.call_soon(self._flush)
        elif len(unsent) >= ENOUGH:
            self._flush()
        return request

    async def settle(self, request: Request) -> None:
        """Who is cancelled goes only when its request was answered, so that nothing is written
        later."""
        if not request.settled:
            request.future = self._loop.create_future()
            await drain(request.future, DRAIN_S)

    def send(self, request: bytes) -> None:
        """Send, and leave what comes to `on_push`."""
        if request and self.broken is None:
            self._transport.write(request)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self.broken is None:
            self._transport.write(b"".join(unsent))

    # --- answers ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hand out what has come whole."""
        self._reader.feed(data)
        hand_out = self.on_push or self._hand_out
        try:
            while (reply := self._reader.gets()) is not False:
                hand_out(reply)
        except hiredis.HiredisError as exc:
            self._break(exc)

    def _hand_out(self, reply: Any) -> None:
        waiting = self._waiting
        request = waiting[0]
        replies = request.replies
        replies.append(reply)
        if len(replies) == request.count:
            waiting.popleft()
            self.is_new = False
            request.settled = True
            future = request.future
            if not future.done():
                future.set_result(replies)

    # --- its end ----------------------------------------------------------------------------

    def eof_received(self) -> None:
        """The other side hung up."""
        self._break(ConnectionResetError("the connection was closed by the server"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up, or we did."""
        self._break(exc or ConnectionResetError("the connection was closed"))
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Close it."""
        self._break(ConnectionAbortedError("the connection was closed"))

    def _break(self, why: Exception) -> None:
        if self.broken is not None:
            return
        self.broken = why
        if self._watch is not None:
            self._watch.cancel()
        sent = len(self._waiting) - len(self._unsent)
        for place, request in enumerate(self._waiting):
            request.settled = True
            if not request.future.done():
                trouble = errors.no_answer if place < sent else errors.not_sent
                error = trouble(why, self.where)
                error.__cause__ = why
                request.future.set_exception(error)
        self._waiting.clear()
        self._transport.abort()
        # redis-py would complain about a connection that nobody closed.
        self._theirs._reader = self._theirs._writer = None

    def _watch_from(self, since: float) -> None:
        if self._watch is None:
            wait_s = since + self._timeout_s - monotonic()
            self._watch = self._loop.call_later(max(0.0, wait_s), self._look)

    def _look(self) -> None:
        """The oldest request is as old as it may get, or there is a younger one to watch."""
        self._watch = None
        if not self._waiting:
            return
        since = self._waiting[0].since
        if monotonic() >= since + self._timeout_s:
            self._break(TimeoutError(f"no reply within {self._timeout_s:g} s"))
        else:
            self._watch_from(since)


class ConnectionPool:
    """A connection that is made when it is needed, once, and again when it broke."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._connecting: asyncio.Future[Connection] | None = None
        self.where = "?"  # whereto the newest one leads
        self.closed = False

    def ready(self) -> Connection | None:
        """The connection, if it can be used right now."""
        connection = self._connection
        return connection if connection is not None and connection.usable() else None

    async def exchange(self, data: bytes, count: int = 1, looks: bool = False) -> list[Any]:
        """Send a request and get its replies. `looks`: it changes nothing."""
        tried = False
        while True:
            connection = await self.get()
            is_new = connection.is_new
            try:
                return await connection.exchange(data, count)
            except HoldfastError as trouble:
                if tried or not errors.can_ask_again(trouble, looks, is_new):
                    raise errors.no_doubt(trouble) if looks else trouble from trouble.__cause__
            tried = True

    async def get(self) -> Connection:
        """The connection. Whoever comes while one is being made waits for the same one."""
        if self.closed:
            raise Unavailable("The connections to Redis were closed meanwhile.")
        connection = self.ready()
        if connection is not None:
            return connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._make())
            self._connecting.add_done_callback(self._made)
        return await asyncio.shield(self._connecting)

    async def _make(self) -> Connection:
        connection: Connection = await self._connect()
        if self.closed:
            connection.close()
            raise Unavailable("The connections to Redis were closed meanwhile.")
        self._connection = connection
        self.where = connection.where
        return connection

    def _made(self, making: asyncio.Future[Connection]) -> None:
        self._connecting = None
        if not making.cancelled():
            making.exception()  # whoever waits has it; nobody may

    def drop_idle(self) -> None:
        """Close the connection; the next request connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def close(self) -> None:
        """Close the connection for good."""
        self.closed = True
        connection, making = self._connection, self._connecting
        self.drop_idle()
        if making is not None:
            making.cancel()
            await asyncio.wait({making})
        if connection is not None:
            await connection.closed
