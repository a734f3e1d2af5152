"""asyncio faces for stores that are written for threads, and what their cancellation needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import Amended, Applied, Change, Entry, Found, Page, Version
from holdfast.core.records import NEVER, SECOND, Micros, Record
from holdfast.runtime.pool import DaemonPool
from holdfast.stores.base import AsyncStore, Outcome, Store
from holdfast.stores.waiting.handles import NotifyingStore

R = TypeVar("R")

# How long a cancelled call may take to finish its write before it goes on without anybody waiting.
DRAIN_S = 0.2
WORKERS = 8
WAITERS = 256


class ThreadedStore(AsyncStore):
    """Runs every call in a thread of its own pool, never on the event loop.

    A cancelled write goes on in its thread; the cancellation is passed on only when the
    write has finished (or after a grace time), so that its clean-up comes after it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.facts = store.facts
        # Waiting takes threads too; they must not starve the calls that free a lock.
        self._calls = DaemonPool(WORKERS, "holdfast-store")
        self._waits = DaemonPool(WAITERS, "holdfast-wait")

    async def load(self, key: str, by: Micros = NEVER) -> Entry:
        return await self._run(self._calls, partial(self._store.load, key, by))

    async def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        return await self._run(
            self._calls, partial(self._store.swap, key, version, record, wake, by)
        )

    async def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        return await self._run(self._calls, partial(self._store.scan, prefix, cursor, limit, by))

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        if isinstance(self._store, NotifyingStore):
            return await wait_for_notify(self._store, key, version, token, at_most)
        call = partial(self._store.wait, key, version, token, at_most)
        return await asyncio.wrap_future(self._waits.submit(call))

    async def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        return await self._run(self._calls, partial(self._store.amend, key, change, by))

    async def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        return await self._run(self._calls, partial(self._store.apply, key, command, beat, by))

    async def setup(self) -> None:
        await self._run(self._calls, self._store.setup)

    async def close(self) -> None:
        try:
            await self._run(self._calls, self._store.close)
        finally:
            self._calls.close()
            self._waits.close()

    async def _run(self, pool: DaemonPool, call: Callable[[], R]) -> R:
        future: Future[R] = pool.submit(call)
        wrapped = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(wrapped)
        except asyncio.CancelledError:
            await drain(wrapped, DRAIN_S)
            raise


async def drain(future: asyncio.Future[R], seconds: float) -> bool:
    """Wait up to `seconds` for `future`, deferring cancellation.

    Returns True if we were cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    cancelled = False
    while not future.done() and loop.time() < ends_at:
        try:
            await asyncio.wait({future}, timeout=ends_at - loop.time())
        except asyncio.CancelledError:
            cancelled = True
    future.add_done_callback(_look_at)
    return cancelled


def _look_at(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, and asyncio shall not complain that nobody saw its error."""
    if not future.cancelled():
        future.exception()


async def finish(call: Coroutine[Any, Any, R], *, goes_on: bool = False) -> R:
    """Run `call` to its end even if we are cancelled, so that what undoes it comes after it. If it
    takes too long then, it is cancelled as well, or `goes_on` without us."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await drain(task, DRAIN_S)
        if not goes_on:
            task.cancel()
        raise


async def wait_for_notify(
    store: NotifyingStore, key: str, version: Version, token: str, at_most: Micros
) -> Found:
    """Wait until the store notifies or the time is over, without a thread."""
    loop, notified = asyncio.get_running_loop(), asyncio.Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(notified.set)

    handle = store.register_wait(key, version, token, notify)
    try:
        async with asyncio.timeout(at_most / SECOND):
            await notified.wait()
    except TimeoutError:
        pass
    finally:
        store.cancel_wait(handle)
    return handle.found


class InlineStore(AsyncStore):
    """For a store whose calls never block: they are made on the event loop."""

    def __init__(self, store: NotifyingStore) -> None:
        self._store = store
        self.facts = store.facts

    async def load(self, key: str, by: Micros = NEVER) -> Entry:
        return self._store.load(key, by)

    async def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        return self._store.swap(key, version, record, wake, by)

    async def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        return self._store.amend(key, change, by)

    async def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        return self._store.scan(prefix, cursor, limit, by)

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        return await wait_for_notify(self._store, key, version, token, at_most)

    async def setup(self) -> None:
        self._store.setup()

    async def close(self) -> None:
        self._store.close()
