"""Looks at the store again and again, and tells whoever listens what has changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from holdfast.aio import Locks
from holdfast.errors import BadKey, HoldfastError
from holdfast.stores.url import redact
from holdfast.ui.history import History
from holdfast.ui.seen import Json, lock_json, parties

# It pauses for so many times as long as it looked: many locks are looked at less often.
PART_OF_TIME = 2
# So many messages may wait for one browser; one that is slower gets a new snapshot.
MOST_WAITING = 50


class Observer:
    """What the page knows: the locks as they were seen last, and who wants to be told."""

    def __init__(self, locks: Locks, history: History, prefix: str, interval: float) -> None:
        self._locks = locks
        self._history = history
        self._prefix = prefix
        self._interval = interval
        self.seen: dict[str, Json] = {}
        self.looked_at: float | None = None
        self.trouble = ""
        self._listeners: set[asyncio.Queue[Json | None]] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began = time.monotonic()
            await self.look()
            took = time.monotonic() - began
            await asyncio.sleep(max(self._interval, took * PART_OF_TIME))

    async def look(self) -> None:
        """Look once, and tell what has changed."""
        try:
            found: dict[str, Json] = {}
            async for lock in self._locks.list(self._prefix, free=True):
                found[lock.key] = lock_json(lock, time.time())
        except HoldfastError as trouble:
            self._failed(redact(str(trouble)))
            return
        now = time.time()
        changes = self._changes(found, now)
        self.seen, self.looked_at = found, now
        await asyncio.to_thread(self._history.saw, list(found.values()), now)
        if changes is not None:
            self._tell(changes)

    def _failed(self, why: str) -> None:
        self._history.failed(f"the store could not be read: {why}")
        if why != self.trouble:
            self.trouble = why
            self._tell({"type": "trouble", "now": time.time(), "trouble": why})

    def _changes(self, found: dict[str, Json], now: float) -> Json | None:
        """Returns what to tell, or None if nothing is new."""
        changed, renewed = [], {}
        for key, lock in found.items():
            before = self.seen.get(key)
            if before is None or parties(before) != parties(lock):
                changed.append(lock)
            else:
                expiries = [one["expires"] for one in lock["holders"]]
                if expiries != [one["expires"] for one in before["holders"]]:
                    renewed[key] = expiries
        gone = [key for key in self.seen if key not in found]
        well_again, self.trouble = bool(self.trouble), ""
        if not (changed or renewed or gone or well_again or self.looked_at is None):
            return {"type": "beat", "now": now}
        return {"type": "changes", "now": now, "locks": changed, "renewed": renewed, "gone": gone}

    # --- for browsers ---------------------------------------------------------------------------

    def snapshot(self) -> Json:
        """Returns everything as it was seen last."""
        return {
            "type": "snapshot",
            "now": time.time(),
            "looked_at": self.looked_at,
            "trouble": self.trouble,
            "locks": list(self.seen.values()),
        }

    async def updates(self) -> AsyncIterator[Json]:
        """Yields a snapshot, and then what changes, without end."""
        queue: asyncio.Queue[Json | None] = asyncio.Queue(MOST_WAITING)
        self._listeners.add(queue)
        try:
            yield self.snapshot()
            while True:
                update = await queue.get()
                if update is None:  # it was too slow: start anew
                    while not queue.empty():
                        queue.get_nowait()
                    update = self.snapshot()
                yield update
        finally:
            self._listeners.discard(queue)

    def _tell(self, update: Json) -> None:
        for queue in self._listeners:
            try:
                queue.put_nowait(update)
            except asyncio.QueueFull:
                queue.get_nowait()
                queue.put_nowait(None)

    async def evict(self, key: str, fence: int, reason: str, operator: str) -> list[Any]:
        """Evict one holder of a lock that is shown. Returns the owners of those evicted."""
        if not key.startswith(self._prefix):
            raise BadKey(f"This page shows locks that start with {self._prefix!r}.")
        evicted = await self._locks.evict(key, fence=fence, reason=reason, operator=operator)
        await self.look()
        return [holder.owner for holder in evicted]
