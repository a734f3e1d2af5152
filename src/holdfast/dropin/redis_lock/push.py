"""Waiting for a release: by the message that our own releases publish, or by sleeping.

redis-py's locks publish nothing, so those who listen still look every `sleep` seconds; so
do those who may not subscribe, or whose connection broke. A message only ends a sleep
early, and says nothing about who holds the lock.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

# How long the server may take to confirm that we listen.
CONFIRM_S = 2.0


class Listener:
    """Hears of releases on one channel, on a connection of its own while we wait."""

    def __init__(self, client: Any, channel: bytes) -> None:
        self._pubsub: Any = None
        with suppress(RedisError):
            self._pubsub = client.pubsub()
            self._pubsub.subscribe(channel)
            self._pubsub.get_message(timeout=CONFIRM_S)

    def wait(self, seconds: float) -> None:
        """Return at the next message, or after so long."""
        ends_at = time.monotonic() + seconds
        if self._pubsub is not None:
            try:
                if self._pubsub.get_message(timeout=seconds) is not None:
                    return
            except RedisError:
                self.close()
        time.sleep(max(0.0, ends_at - time.monotonic()))

    def close(self) -> None:
        """Give the connection back."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with suppress(RedisError):
                pubsub.close()
