"""The asyncio face of the Redis store: connections and a listener on the loop itself.

Listings of a cluster and the set-up, which nobody is in a hurry for, run in a thread on the
blocking face, which an asyncio client has anyway: its renewals come from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ResponseError

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import Applied, Entry, Page, Version
from holdfast.core.records import SECOND, Micros, Record
from holdfast.core.steps import corrupt
from holdfast.errors import HoldfastError, Unavailable
from holdfast.runtime.pool import DaemonPool
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.redis import layout, talk
from holdfast.stores.redis.aio_wire import AsyncWire
from holdfast.stores.redis.listen import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    QUIET_S,
    Bells,
    handle_for,
    logger,
    report_surprise,
)
from holdfast.stores.redis.pipeline import Pipeline
from holdfast.stores.redis.routing import Question
from holdfast.stores.redis.talk import Corrupt
from holdfast.stores.redis.words import PING, TIME, pack, start_of
from holdfast.stores.waiting.handles import WaitHandle

if TYPE_CHECKING:
    from holdfast.stores.redis.store import RedisStore

R = TypeVar("R")


class AsyncRedisStore(AsyncStore):
    """Belongs to one event loop: the one it is used on."""

    of_one_loop = True

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.facts = store.facts
        self._speaker = store.speaker
        self._names = store.names
        self._wire = AsyncWire(store.site, store.wait_replicas)
        self._listener = AsyncListener(self._names, self._wire.connect, self._version)
        self._threads = DaemonPool(2, "holdfast-redis")

    async def apply(self, key: str, command: Command, beat: str) -> Applied:
        """One script, one trip."""
        call = self._speaker.command(key, command, beat)
        pipeline = self._wire.ready()
        try:
            if pipeline is None:
                return talk.applied(await self._wire.call(call), command, beat)
            # The short way: every coroutine in between costs a twentieth of the whole.
            request = pipeline.ask(call.request, call.replies)
            try:
                replies = await request.future
            except asyncio.CancelledError:
                await pipeline.settle(request)
                raise
            except Unavailable:  # the connection broke before this was sent
                return talk.applied(await self._wire.call(call), command, beat)
            reply = replies[0]
            if call.tail or isinstance(reply, ResponseError):
                reply = await self._wire.settled(call, replies, pipeline.where)
            return talk.applied(reply, command, beat)
        except (Corrupt, ValueError, RecursionError):
            raise corrupt(key, await self.load(key)) from None

    async def load(self, key: str) -> Entry:
        """TIME, then GET, in one trip."""
        name = self._names.record(key)
        time, raw = await self._wire.ask(Question(name, pack(b"GET", name), TIME))
        return layout.read(raw, talk.clock(time))

    async def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """One script."""
        return talk.swapped(await self._wire.call(self._speaker.swap(key, version, record, wake)))

    async def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """A page of the index; in a cluster, of all keys of all masters."""
        if self._store.site.kind == "cluster":
            return await self._in_thread(lambda: self._store.scan(prefix, cursor, limit))
        call = self._speaker.scan(prefix, cursor, limit)
        return talk.page(await self._wire.call(call), limit)

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> None:
        """Sleep until the lock's channel says that it may be our turn."""
        loop = asyncio.get_running_loop()
        notified = asyncio.Event()
        timer = loop.call_later(at_most / SECOND, notified.set)
        handle = handle_for(key, version, token, notified.set)
        self._listener.register_wait(handle)
        try:
            await notified.wait()
        finally:
            timer.cancel()
            self._listener.cancel_wait(handle)

    async def setup(self) -> None:
        """Check the server, and repair the index."""
        await self._in_thread(self._store.setup)

    def moved(self) -> AsyncStore:
        """With connections of its own."""
        self._threads.close()
        return AsyncRedisStore(self._store)

    async def close(self) -> None:
        """Hang up, both faces."""
        await self._listener.close()
        await self._wire.close()
        self._store.close()
        self._threads.close()

    async def _version(self, key: str) -> Version:
        name = self._names.record(key)
        (start,) = await self._wire.ask(Question(name, start_of(name)))
        return layout.version_of(start) if start else None

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await asyncio.wrap_future(self._threads.submit(call))


class AsyncListener:
    """Runs the bells in a task, from the first wait on. See `listen`."""

    def __init__(
        self,
        names: layout.Names,
        connect: Callable[[], Awaitable[Pipeline]],
        look: Callable[[str], Awaitable[Version]],
    ) -> None:
        self._bells = Bells(names)
        self._connect = connect
        self._look = look
        self._pipeline: Pipeline | None = None
        self._task: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._heard = False
        self._refused = False

    def register_wait(self, handle: WaitHandle) -> None:
        """Ring this one."""
        request = self._bells.add(handle)
        if self._pipeline is not None:
            self._pipeline.send(request)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer."""
        self._bells.handles.discard(handle)

    async def close(self) -> None:
        """Hang up, and let everyone look for themselves."""
        tasks = {task for task in (self._task, *self._looks) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._bells.handles.notify_all()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                pipeline = await self._connect()
            except Exception as trouble:
                report_surprise(trouble)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            await self._listen(pipeline)
            if self._refused:
                await asyncio.sleep(LONGEST_PAUSE_S)

    async def _listen(self, pipeline: Pipeline) -> None:
        self._refused = False
        pipeline.on_push = self._hear
        try:
            self._pipeline = pipeline
            pipeline.send(self._bells.subscribe_anew())
            while pipeline.broken is None:
                self._heard = False
                await asyncio.wait({pipeline.closed}, timeout=QUIET_S)
                if not self._heard and pipeline.broken is None:
                    pipeline.send(PING)
                    await asyncio.wait({pipeline.closed}, timeout=QUIET_S)
                    if not self._heard:
                        pipeline.close()
        finally:
            self._pipeline = None
            pipeline.close()

    def _hear(self, reply: Any) -> None:
        self._heard = True
        if isinstance(reply, ResponseError):
            logger.warning("Redis does not push wake-ups, those who wait will poll: %s", reply)
            self._refused = True
            if self._pipeline is not None:
                self._pipeline.close()
            return
        if not isinstance(reply, list):
            return
        key, request = self._bells.heard(reply)
        if self._pipeline is not None:
            self._pipeline.send(request)
        if key is not None:
            look = asyncio.ensure_future(self._check(key))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    async def _check(self, key: str) -> None:
        try:
            self._bells.looked(key, await self._look(key))
        except HoldfastError:
            self._bells.notify(key)
