"""Runs steps in an asyncio task.

A cancellation ends the steps where they stand. What they may have left in the store is
taken out in a task of its own, which has a deadline and which no further cancellation
can stop; then the cancellation goes on its way. It is never swallowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
from holdfast.runtime.driver import GRACE, local_handlers, report_leftover
from holdfast.stores.async_adapters import drain
from holdfast.stores.base import AsyncStore, Outcome

R = TypeVar("R")


class AsyncDriver:
    """The asyncio driver over one store."""

    def __init__(
        self,
        store: AsyncStore,
        observations: Observations,
        emit: Callable[[Event], None],
        keep: Callable[[Hold], None],
        check: Callable[[], object] = bool,
    ) -> None:
        self._witness = observations
        self._emit = emit
        self._local = local_handlers(emit, keep)
        self._store = store
        self._remote: dict[type, Callable[[Any], Awaitable[Any]]] = {
            Load: self._load,
            Swap: self._swap,
            SwapMany: self._swap_many,
            Apply: self._apply,
            ApplyMany: self._apply_many,
            Scan: self._scan,
            Wait: self._wait,
            Sleep: self._sleep,
        }
        self._check = check
        self.loop: asyncio.AbstractEventLoop | None = None  # on which it was last used

    def store_here(self, *, to_close: bool = False) -> AsyncStore:
        """The store, for the event loop that runs. One loop may follow another, as they do in
        tests; two at a time share only a store that knows nothing of loops. Whoever closes it
        need not wait for the end of a loop that stands still: nobody is in its connections."""
        loop, before = asyncio.get_running_loop(), self.loop
        if loop is not before:
            if before is not None and self._store.of_one_loop:
                if before.is_running() if to_close else not before.is_closed():
                    raise UsageError(
                        "This client is in use on another event loop, and its connections belong "
                        "to that one: call aio.connect() on each loop."
                    )
                self._store = self._store.moved()
            self.loop = loop
        return self._store

    async def _load(self, effect: Load) -> tuple[Entry, Micros, Micros]:
        sent = clock.monotonic()
        return await self._store.load(effect.key), sent, clock.monotonic()

    async def _scan(self, effect: Scan) -> Page:
        return await self._store.scan(effect.prefix, effect.cursor, effect.limit)

    async def _swap(self, effect: Swap) -> tuple[Outcome, Micros]:
        outcome = await self._store.swap(effect.key, effect.version, effect.record, effect.wake)
        return outcome, clock.monotonic()

    async def _swap_many(self, effect: SwapMany) -> tuple[list[Outcome | Exception], Micros]:
        outcomes: list[Outcome | Exception] = []
        for swap in effect.swaps:
            try:
                outcomes.append((await self._swap(swap))[0])
            except Exception as trouble:
                outcomes.append(trouble)
        return outcomes, clock.monotonic()

    async def _apply(self, effect: Apply) -> tuple[Applied, Micros]:
        applied = await self._store.apply(effect.key, effect.command, effect.beat)
        return applied, clock.monotonic()

    async def _apply_many(self, effect: ApplyMany) -> tuple[list[Applied | Exception], Micros]:
        outcomes: list[Applied | Exception] = []
        for apply in effect.applies:
            try:
                outcomes.append((await self._apply(apply))[0])
            except Exception as trouble:
                outcomes.append(trouble)
        return outcomes, clock.monotonic()

    # Who waits may find afterwards that the client was closed meanwhile.
    async def _wait(self, effect: Wait) -> Entry | None:
        self._check()
        found = await self._store.wait(effect.key, effect.version, effect.token, effect.at_most)
        self._check()
        return found

    async def _sleep(self, effect: Sleep) -> None:
        await asyncio.sleep(effect.duration / SECOND)
        self._check()

    async def run(self, steps: Steps[R]) -> R:
        """Run to the end. A cancellation ends the steps where they stand."""
        local, remote, store = self._local, self._remote, self.store_here()
        answer: Any
        try:
            effect = steps.send(None)
            while True:
                try:
                    kind = type(effect)
                    if isinstance(effect, Apply):  # the only one that is in a hurry
                        applied = await store.apply(effect.key, effect.command, effect.beat)
                        answer = applied, clock.monotonic()
                    elif kind in local:
                        answer = local[kind](effect)
                    else:
                        answer = await remote[kind](effect)
                except Exception as trouble:
                    effect = steps.throw(trouble)
                else:
                    effect = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            steps.close()
            raise

    async def undo(self, attempts: Sequence[Attempt]) -> None:
        """Take out what the attempts left in the store; if that fails, the ttl will."""
        if any(attempt.touched for attempt in attempts):
            cleaning = asyncio.ensure_future(self._undo(attempts))
            if await drain(cleaning, 2 * GRACE / SECOND):
                raise asyncio.CancelledError

    async def _undo(self, attempts: Sequence[Attempt]) -> None:
        try:
            await self.run(undo_steps(self._witness, attempts, clock.monotonic() + GRACE))
        except HoldfastError as trouble:
            report_leftover(self._emit, attempts, trouble)
