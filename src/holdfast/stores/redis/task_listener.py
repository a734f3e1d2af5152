"""Reads wake-ups from Redis in a task of the event loop. See `notify` for what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import ResponseError

from holdfast.core.contract import Version
from holdfast.errors import HoldfastError
from holdfast.stores.redis import record_text
from holdfast.stores.redis.notify import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    QUIET_S,
    Subscriptions,
    logger,
    report_surprise,
)
from holdfast.stores.redis.pipeline import Connection
from holdfast.stores.redis.resp import PING
from holdfast.stores.waiting.handles import WaitHandle


class AsyncListener:
    """Reads what the server publishes in a task, from the first wait on."""

    def __init__(
        self,
        names: record_text.Names,
        connect: Callable[[], Awaitable[Connection]],
        look: Callable[[str], Awaitable[Version]],
    ) -> None:
        self._subscriptions = Subscriptions(names)
        self._connect = connect
        self._look = look
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._heard = False
        self._refused = False

    def register_wait(self, handle: WaitHandle) -> None:
        """Notify this waiter."""
        request = self._subscriptions.add(handle)
        if self._connection is not None:
            self._connection.send(request)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def cancel_wait(self, handle: WaitHandle) -> None:
        """Notify this waiter no longer."""
        self._subscriptions.handles.discard(handle)

    async def close(self) -> None:
        """Close the connection, and let every waiter look by itself."""
        tasks = {task for task in (self._task, *self._looks) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._subscriptions.handles.notify_all()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                connection = await self._connect()
            except Exception as trouble:
                report_surprise(trouble)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            await self._listen(connection)
            if self._refused:
                await asyncio.sleep(LONGEST_PAUSE_S)

    async def _listen(self, connection: Connection) -> None:
        self._refused = False
        connection.on_push = self._hear
        try:
            self._connection = connection
            connection.send(self._subscriptions.subscribe_anew())
            while connection.broken is None:
                self._heard = False
                await asyncio.wait({connection.closed}, timeout=QUIET_S)
                if not self._heard and connection.broken is None:
                    connection.send(PING)
                    await asyncio.wait({connection.closed}, timeout=QUIET_S)
                    if not self._heard:
                        connection.close()
        finally:
            self._connection = None
            connection.close()

    def _hear(self, reply: Any) -> None:
        self._heard = True
        if isinstance(reply, ResponseError):
            logger.warning("Redis does not push wake-ups, those who wait will poll: %s", reply)
            self._refused = True
            if self._connection is not None:
                self._connection.close()
            return
        if not isinstance(reply, list):
            return
        key, request = self._subscriptions.heard(reply)
        if self._connection is not None:
            self._connection.send(request)
        if key is not None:
            look = asyncio.ensure_future(self._check(key))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    async def _check(self, key: str) -> None:
        try:
            self._subscriptions.looked(key, await self._look(key))
        except HoldfastError:
            self._subscriptions.notify(key)
