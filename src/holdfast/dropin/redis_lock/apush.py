"""The same as `push`, awaited."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from holdfast.dropin.redis_lock.push import CONFIRM_S


class Listener:
    """Hears of releases on one channel, on a connection of its own while we wait."""

    def __init__(self, client: Any, channel: bytes) -> None:
        self._client = client
        self._channel = channel
        self._pubsub: Any = None

    async def open(self) -> None:
        """Listen from here on, if we may."""
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
        await asyncio.sleep(max(0.0, ends_at - time.monotonic()))

    async def close(self) -> None:
        """Give the connection back."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with suppress(RedisError):
                await pubsub.aclose()
