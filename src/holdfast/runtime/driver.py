# Made from driver_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Runs the core's steps over a store.

A cancellation or an interrupt ends the steps where they stand. `undo` then takes out what they may
have left in the store. The caller waits for that only for a moment: what takes longer is done in
the background (see `cleaning`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.core.contract import Amended, Applied, Entry, Found, Page
from holdfast.core.effects import (
    Amend,
    Apply,
    ApplyMany,
    Load,
    Park,
    Scan,
    Sleep,
    Steps,
    Swap,
    SwapMany,
    Wait,
)
from holdfast.core.events import Event, StoreAnswered
from holdfast.core.holds import Attempt, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Micros
from holdfast.core.releasing import undo_steps
from holdfast.core.wait_until_free import WATCHER
from holdfast.core.waiting import REQUEST_TIMEOUT, sent_by
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.observe.presence import StorePresence
from holdfast.runtime import clock
from holdfast.runtime.local_effects import local_effects, report_leftover
from holdfast.runtime.parking import Parking
from holdfast.runtime.run import run
from holdfast.runtime.timing import timed
from holdfast.stores.base import Outcome, Store

R = TypeVar("R")

# Usually the store is cleaned up within a millisecond, and the caller should find it so. But it
# waits no longer than this.
MOMENT: Micros = SECOND // 5


class Cleaner(Protocol):
    """Cleans up behind attempts in the background (`cleaning.Cleaning`)."""

    def start(self, attempts: Sequence[Attempt]) -> None: ...
    def repeat(self, attempts: Sequence[Attempt]) -> None: ...
    def sleeps(self, key: str, token: str) -> None: ...
    def wakes(self, token: str) -> None: ...


class Driver:
    """Answers effects with the calls of one store.

    `emit` and `keep` answer the effects of these names. `check` raises if the client was closed
    while a call waited. `answered`, if given, is told of every request to the store; `presence` is
    told whether calls fail by it.
    """

    def __init__(
        self,
        store: Store,
        observations: Observations,
        emit: Callable[[Event], None],
        keep: Callable[[Hold], None],
        check: Callable[[], object] = bool,
        request_timeout: Micros = REQUEST_TIMEOUT,
        cleaner: Cleaner | None = None,
        *,
        answered: Callable[[StoreAnswered], None] | None = None,
        presence: StorePresence | None = None,
    ) -> None:
        self._store = store
        self._observations = observations
        self._emit = emit
        self._check = check
        self.request_timeout = request_timeout
        self._cleaner = cleaner
        self._presence = presence
        self._local = local_effects(emit, keep)
        self._remote: dict[type, Callable[[Any], Any]] = {
            Load: self._load,
            Swap: self._swap,
            Amend: self._amend,
            Apply: self._apply,
            Scan: self._scan,
            Wait: self._wait,
            Park: Parking(check).park,
            Sleep: self._sleep,
        }
        # Only the keeper sends batches, and it runs in threads.
        self._remote[SwapMany] = self._swap_many
        self._remote[ApplyMany] = self._apply_many
        if answered is not None:
            self._remote = timed(self._remote, answered)

    def run(self, steps: Steps[R]) -> R:
        """Run steps to their end. An interrupt or a cancellation ends them where they stand."""
        presence = self._presence
        try:
            outcome = run(steps, self._local, self._remote)
        except (Unavailable, OutcomeUnknown) as trouble:
            # Without a cause it did not come from the store: the caller's time was over.
            if presence is not None and trouble.__cause__ is not None:
                presence.failed(str(trouble))
            raise
        if presence is not None and presence.away:
            presence.answered()
        return outcome

    def undo(self, attempts: Sequence[Attempt]) -> None:
        """Take out what the attempts left in the store: here, if that takes but a moment, or else
        in the background. If it fails there, too, the ttl frees it."""
        if not any(attempt.touched for attempt in attempts):
            return
        assert self._cleaner is not None
        unanswered = [attempt for attempt in attempts if attempt.touched and attempt.unsettled]
        until = clock.monotonic() + MOMENT
        try:
            self.run(undo_steps(self._observations, attempts, until))
        except BaseException as trouble:
            self._cleaner.start(attempts)
            if not isinstance(trouble, HoldfastError):
                raise
        else:
            self._cleaner.repeat(unanswered)

    def undo_later(self, attempts: Sequence[Attempt]) -> None:
        """Have what the attempts left in the store taken out in the background."""
        assert self._cleaner is not None
        self._cleaner.start(attempts)

    def clean_up(self, attempts: Sequence[Attempt], until: Micros) -> None:
        """Take out what the attempts left in the store, in this thread. If that fails, the
        ttl frees it."""
        try:
            self.run(undo_steps(self._observations, attempts, until))
        except HoldfastError as trouble:
            report_leftover(self._emit, attempts, trouble)

    # --- effects that reach the store -------------------------------------------------------

    def _load(self, asked: Load) -> tuple[Entry, Micros, Micros]:
        sent = clock.monotonic()
        by = sent_by(asked.by, sent, self.request_timeout)
        return self._store.load(asked.key, by), sent, clock.monotonic()

    def _swap(self, asked: Swap) -> tuple[Outcome, Micros]:
        by = sent_by(asked.by, clock.monotonic(), self.request_timeout)
        outcome = self._store.swap(asked.key, asked.version, asked.record, asked.wake, by)
        return outcome, clock.monotonic()

    def _amend(self, asked: Amend) -> tuple[Amended, Micros]:
        by = sent_by(asked.by, clock.monotonic(), self.request_timeout)
        amended = self._store.amend(asked.key, asked.change, by)
        return amended, clock.monotonic()

    def _apply(self, asked: Apply) -> tuple[Applied, Micros]:
        by = sent_by(asked.by, clock.monotonic(), self.request_timeout)
        applied = self._store.apply(asked.key, asked.command, asked.beat, by)
        return applied, clock.monotonic()

    def _scan(self, asked: Scan) -> Page:
        by = sent_by(asked.by, clock.monotonic(), self.request_timeout)
        return self._store.scan(asked.prefix, asked.cursor, asked.limit, by)

    def _swap_many(self, asked: SwapMany) -> tuple[Sequence[Outcome | Exception], Micros]:
        by = sent_by(asked.by, clock.monotonic(), self.request_timeout)
        outcomes = self._store.swap_many(asked.swaps, by)
        return outcomes, clock.monotonic()

    def _apply_many(self, asked: ApplyMany) -> tuple[Sequence[Applied | Exception], Micros]:
        by = sent_by(asked.by, clock.monotonic(), self.request_timeout)
        answers = self._store.apply_many(asked.applies, by)
        return answers, clock.monotonic()

    # The client may be closed while a call waits.
    def _wait(self, asked: Wait) -> Found:
        cleaner, token = self._cleaner, asked.token
        if cleaner is not None and token != WATCHER:
            # Before the check: a thread that closes the client after that knows of this call.
            cleaner.sleeps(asked.key, token)
        try:
            self._check()
            found = self._store.wait(asked.key, asked.version, token, asked.at_most)
        finally:
            if cleaner is not None:
                cleaner.wakes(token)
        self._check()
        return found

    def _sleep(self, asked: Sleep) -> None:
        time.sleep(asked.duration / SECOND)
        self._check()
