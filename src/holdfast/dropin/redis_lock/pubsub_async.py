"""Waits for a release: for the message that our own releases publish, or for a time.

redis-py's locks publish nothing, so waiters that listen still look every `sleep` seconds; so do
those that may not subscribe, or whose connection broke. A message only ends a pause early, and
says nothing about who holds the lock.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from holdfast.runtime.flavour import ASYNC

if ASYNC:
    import asyncio

# How long the server may take to confirm the subscription.
CONFIRM_S = 2.0


class Listener:
    """Hears of releases on one channel, on a connection of its own while it is open."""

    def __init__(self, client: Any, channel: bytes) -> None:
        self._client = client
        self._channel = channel
        self._pubsub: Any = None

    async def open(self) -> None:
        """Listen from here on, if the server lets us."""
        with suppress(RedisError):
            self._pubsub = self._client.pubsub()
            await self._pubsub.subscribe(self._channel)
            await self._pubsub.get_message(timeout=CONFIRM_S)

    async def wait(self, seconds: float) -> None:
        """Return at the next message, or after so long."""
        ends_at = time.monotonic() + seconds
        if self._pubsub is not None:
            try:
                if await self._pubsub.get_message(timeout=seconds) is not None:
                    return
            except RedisError:
                await self.close()
        left = max(0.0, ends_at - time.monotonic())
        if ASYNC:
            await asyncio.sleep(left)
        else:
            time.sleep(left)

    async def close(self) -> None:
        """Give the connection back."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with suppress(RedisError):
                await pubsub.aclose()
