"""The connection that all tasks of an event loop share: what they ask in one turn of the loop
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
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import hiredis
from msgspec import Struct
from redis.exceptions import ResponseError

from holdfast.core.records import NEVER, Micros
from holdfast.errors import HoldfastError
from holdfast.stores.async_adapters import DRAIN_S, drain
from holdfast.stores.deadlines import not_sent, seconds_to_send
from holdfast.stores.redis import errors
from holdfast.stores.redis.connection_async import AsyncConnection
from holdfast.stores.spin import poll_of

_Reply = Future[list[Any]]

# So many requests leave without waiting for more: the server works on them while the other
# tasks of this turn prepare theirs.
ENOUGH = 12


class Request(Struct, eq=False):
    """What was asked, until all its replies have come."""

    count: int
    by: float  # when its time is over, on the monotonic clock
    future: _Reply
    replies: list[Any] = []
    settled: bool = False


class Pipeline(asyncio.Protocol):
    """One connection for many tasks of one loop."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.where = connection.where
        self.is_new = True  # it has not answered yet
        self.broken: Exception | None = None
        self.retired = False  # it serves only those who wait already
        self._theirs = connection.theirs
        self._timeout_s = connection.timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ResponseError)
        self._waiting: deque[Request] = deque()
        self._unsent: list[bytes] = []  # the requests of the last ones that wait
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = 0.0
        self._transport = self._theirs._writer.transport
        self._transport.set_protocol(self)
        socket = self._transport.get_extra_info("socket")
        self._poll = None if socket is None else poll_of(socket.fileno())
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def usable(self) -> bool:
        """Whether it can be used now. The loop may not have noticed yet that the server hung up:
        then there is something to read, although nothing was asked. Asks only the kernel."""
        if self.broken is None and not self._waiting and self._poll is not None and self._poll(0):
            self._break(ConnectionResetError("the connection was closed by the server"))
        return self.broken is None and not self.retired

    # --- asking -----------------------------------------------------------------------------

    def ask(self, data: bytes, count: int, by: Micros) -> Request:
        """Send a request. A caller that is cancelled while it awaits the replies has to `settle`
        the request."""
        if self.broken is not None:
            raise errors.not_sent(self.broken, self.where) from self.broken
        loop, waiting = self._loop, self._waiting
        ends_at = monotonic() + seconds_to_send(by, self._timeout_s)
        request = Request(count, ends_at, Future(loop=loop))
        waiting.append(request)
        if self._watch is None or ends_at < self._watch_at:
            self._watch_until(ends_at)
        if len(waiting) == 1:
            self._transport.write(data)
            return request
        unsent = self._unsent
        unsent.append(data)
        if len(unsent) == 1:
            loop.call_soon(self._flush)
        elif len(unsent) >= ENOUGH:
            self._flush()
        return request

    async def settle(self, request: Request) -> None:
        """Wait until the request of a cancelled caller was answered, so that nothing is written
        later."""
        if not request.settled:
            request.future = self._loop.create_future()
            await drain(request.future, DRAIN_S)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self.broken is None:
            self._transport.write(b"".join(unsent))

    # --- answers ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hand out what has come whole."""
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._hand_out(reply)
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
            if self.retired and not waiting:
                self.close()

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

    # --- time ------------------------------------------------------------------------------

    def _watch_until(self, at: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = at
        self._watch = self._loop.call_later(max(0.0, at - monotonic()), self._expire)

    def _expire(self) -> None:
        """Tell those whose time is over. Others may still get their answers, in their order; but
        nobody new asks here, and when nobody is left to be answered the connection is closed."""
        self._watch, now = None, monotonic()
        in_time = [request.by for request in self._waiting if now < request.by]
        if len(in_time) < len(self._waiting):
            self.retired = True
            late = TimeoutError("no reply in time")
            for request in self._waiting:
                if now >= request.by and not request.future.done():
                    error = errors.no_answer(late, self.where)
                    error.__cause__ = late
                    request.future.set_exception(error)
            if not in_time:
                self._break(late)
        if in_time:
            self._watch_until(min(in_time))


class ConnectionPool:
    """A pipeline that is made when it is needed, once, and again when it broke."""

    def __init__(self, connect: Callable[[Micros], Awaitable[AsyncConnection]]) -> None:
        self._connect = connect
        self._pipeline: Pipeline | None = None
        self._connecting: asyncio.Future[Pipeline] | None = None
        self.where = "?"  # whereto the newest one leads
        self.closed = False

    def ready(self) -> Pipeline | None:
        """The pipeline, if it can be used right now."""
        pipeline = self._pipeline
        return pipeline if pipeline is not None and pipeline.usable() else None

    async def exchange(
        self, data: bytes, count: int = 1, looks: bool = False, by: Micros = NEVER
    ) -> list[Any]:
        """Send a request and get its replies. `looks`: it changes nothing."""
        tried = False
        while True:
            pipeline = self.ready() or await self.get(by)
            is_new = pipeline.is_new
            request = None
            try:
                request = pipeline.ask(data, count, by)
                return await request.future
            except asyncio.CancelledError:
                if request is not None:
                    await pipeline.settle(request)
                raise
            except HoldfastError as trouble:
                if tried or not errors.can_ask_again(trouble, looks, is_new):
                    raise errors.no_doubt(trouble) if looks else trouble from trouble.__cause__
            tried = True

    async def get(self, by: Micros) -> Pipeline:
        """The pipeline. Whoever comes while one is being made waits for the same one."""
        if self.closed:
            raise errors.closed_meanwhile()
        pipeline = self.ready()
        if pipeline is not None:
            return pipeline
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._make())
            self._connecting.add_done_callback(self._made)
        try:
            async with asyncio.timeout(seconds_to_send(by)):
                return await asyncio.shield(self._connecting)
        except TimeoutError:
            raise not_sent() from None

    async def _make(self) -> Pipeline:
        connection = await self._connect(NEVER)  # whoever waits for it has a time of its own
        if self.closed:
            await connection.close()
            raise errors.closed_meanwhile()
        self._pipeline = pipeline = Pipeline(connection)
        self.where = pipeline.where
        return pipeline

    def _made(self, making: asyncio.Future[Pipeline]) -> None:
        self._connecting = None
        if not making.cancelled():
            making.exception()  # whoever waits has it; nobody may

    def drop_idle(self) -> None:
        """Close the connection; the next request connects anew."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    async def close(self) -> None:
        """Close the connection for good."""
        self.closed = True
        pipeline, making = self._pipeline, self._connecting
        self.drop_idle()
        if making is not None:
            making.cancel()
            await asyncio.wait({making})
        if pipeline is not None:
            await pipeline.closed
