"""Runs the core's steps over a store.

A cancellation or an interrupt ends the steps where they stand. `undo` then removes what they may
have left in the store, within a bounded time. In a cancelled task the clean-up runs in a task of
its own, which no further cancellation can stop; afterwards the cancellation is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.core.contract import Applied, Entry, Page
from holdfast.core.effects import (
    Apply,
    ApplyMany,
    Load,
    Scan,
    Sleep,
    Steps,
    Swap,
    SwapMany,
    Wait,
)
from holdfast.core.events import Event
from holdfast.core.holds import Attempt, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Micros
from holdfast.core.steps import undo_steps
from holdfast.errors import HoldfastError, UsageError
from holdfast.runtime import clock
from holdfast.runtime.flavour import ASYNC
from holdfast.runtime.local_effects import GRACE, local_effects, report_leftover
from holdfast.runtime.run_async import run
from holdfast.stores.base import AsyncStore, Outcome

if ASYNC:
    import asyncio

    from holdfast.stores.async_adapters import drain
else:
    import time

R = TypeVar("R")


class Driver:
    """Answers effects with the calls of one store.

    `emit` and `keep` answer the effects of these names. `check` raises if the client was closed
    while a call waited.
    """

    def __init__(
        self,
        store: AsyncStore,
        observations: Observations,
        emit: Callable[[Event], None],
        keep: Callable[[Hold], None],
        check: Callable[[], object] = bool,
    ) -> None:
        self._store = store
        self._observations = observations
        self._emit = emit
        self._check = check
        self._local = local_effects(emit, keep)
        self._remote: dict[type, Callable[[Any], Any]] = {
            Load: self._load,
            Swap: self._swap,
            Apply: self._apply,
            Scan: self._scan,
            Wait: self._wait,
            Sleep: self._sleep,
        }
        if ASYNC:
            self.loop: asyncio.AbstractEventLoop | None = None  # the loop that used it last
        else:
            # Only the keeper sends batches, and it runs in threads.
            self._remote[SwapMany] = lambda asked: (store.swap_many(asked.swaps), clock.monotonic())
            self._remote[ApplyMany] = lambda asked: (
                store.apply_many(asked.applies),
                clock.monotonic(),
            )

    async def run(self, steps: Steps[R]) -> R:
        """Run steps to their end. An interrupt or a cancellation ends them where they stand."""
        if ASYNC:
            self.store_here()
        return await run(steps, self._local, self._remote)

    async def undo(self, attempts: Sequence[Attempt]) -> None:
        """Remove what the attempts left in the store. If that fails, the ttl frees it."""
        if not any(attempt.touched for attempt in attempts):
            return
        if ASYNC:
            cleaning = asyncio.ensure_future(self._undo(attempts))
            if await drain(cleaning, 2 * GRACE / SECOND):
                raise asyncio.CancelledError
        else:
            self._undo(attempts)

    async def _undo(self, attempts: Sequence[Attempt]) -> None:
        try:
            await self.run(undo_steps(self._observations, attempts, clock.monotonic() + GRACE))
        except HoldfastError as trouble:
            report_leftover(self._emit, attempts, trouble)

    if ASYNC:

        def store_here(self, *, to_close: bool = False) -> AsyncStore:
            """Returns the store for the running event loop.

            A client may be used on one loop after another, as in tests. Two loops at a time can
            only share a store whose connections belong to no loop. `to_close` accepts that the
            other loop is not closed yet, if it is not running: then nobody uses its connections.
            """
            loop, before = asyncio.get_running_loop(), self.loop
            if loop is not before:
                if before is not None and self._store.of_one_loop:
                    if before.is_running() if to_close else not before.is_closed():
                        raise UsageError(
                            "This client is in use on another event loop, and its connections "
                            "belong to that one: call aio.connect() on each loop."
                        )
                    self._store = self._store.moved()
                self.loop = loop
            return self._store

    # --- effects that reach the store -------------------------------------------------------

    async def _load(self, asked: Load) -> tuple[Entry, Micros, Micros]:
        sent = clock.monotonic()
        return await self._store.load(asked.key), sent, clock.monotonic()

    async def _swap(self, asked: Swap) -> tuple[Outcome, Micros]:
        outcome = await self._store.swap(asked.key, asked.version, asked.record, asked.wake)
        return outcome, clock.monotonic()

    async def _apply(self, asked: Apply) -> tuple[Applied, Micros]:
        applied = await self._store.apply(asked.key, asked.command, asked.beat)
        return applied, clock.monotonic()

    async def _scan(self, asked: Scan) -> Page:
        return await self._store.scan(asked.prefix, asked.cursor, asked.limit)

    # The client may be closed while a call waits.
    async def _wait(self, asked: Wait) -> Entry | None:
        self._check()
        found = await self._store.wait(asked.key, asked.version, asked.token, asked.at_most)
        self._check()
        return found

    async def _sleep(self, asked: Sleep) -> None:
        if ASYNC:
            await asyncio.sleep(asked.duration / SECOND)
        else:
            time.sleep(asked.duration / SECOND)
        self._check()
