# Made from driver_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Runs the core's steps over a store.

A cancellation or an interrupt ends the steps where they stand. `undo` then removes what they may
have left in the store, within a bounded time. In a cancelled task the clean-up runs in a task of
its own, which no further cancellation can stop; afterwards the cancellation is passed on.
"""

from __future__ import annotations

import time
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
from holdfast.errors import HoldfastError
from holdfast.runtime import clock
from holdfast.runtime.local_effects import GRACE, local_effects, report_leftover
from holdfast.runtime.run import run
from holdfast.stores.base import Outcome, Store

R = TypeVar("R")


class Driver:
    """Answers effects with the calls of one store.

    `emit` and `keep` answer the effects of these names. `check` raises if the client was closed
    while a call waited.
    """

    def __init__(
        self,
        store: Store,
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
        # Only the keeper sends batches, and it runs in threads.
        self._remote[SwapMany] = lambda asked: (store.swap_many(asked.swaps), clock.monotonic())
        self._remote[ApplyMany] = lambda asked: (
            store.apply_many(asked.applies),
            clock.monotonic(),
        )

    def run(self, steps: Steps[R]) -> R:
        """Run steps to their end. An interrupt or a cancellation ends them where they stand."""
        return run(steps, self._local, self._remote)

    def undo(self, attempts: Sequence[Attempt]) -> None:
        """Remove what the attempts left in the store. If that fails, the ttl frees it."""
        if not any(attempt.touched for attempt in attempts):
            return
        self._undo(attempts)

    def _undo(self, attempts: Sequence[Attempt]) -> None:
        try:
            self.run(undo_steps(self._observations, attempts, clock.monotonic() + GRACE))
        except HoldfastError as trouble:
            report_leftover(self._emit, attempts, trouble)

    # --- effects that reach the store -------------------------------------------------------

    def _load(self, asked: Load) -> tuple[Entry, Micros, Micros]:
        sent = clock.monotonic()
        return self._store.load(asked.key), sent, clock.monotonic()

    def _swap(self, asked: Swap) -> tuple[Outcome, Micros]:
        outcome = self._store.swap(asked.key, asked.version, asked.record, asked.wake)
        return outcome, clock.monotonic()

    def _apply(self, asked: Apply) -> tuple[Applied, Micros]:
        applied = self._store.apply(asked.key, asked.command, asked.beat)
        return applied, clock.monotonic()

    def _scan(self, asked: Scan) -> Page:
        return self._store.scan(asked.prefix, asked.cursor, asked.limit)

    # The client may be closed while a call waits.
    def _wait(self, asked: Wait) -> Entry | None:
        self._check()
        found = self._store.wait(asked.key, asked.version, asked.token, asked.at_most)
        self._check()
        return found

    def _sleep(self, asked: Sleep) -> None:
        time.sleep(asked.duration / SECOND)
        self._check()
