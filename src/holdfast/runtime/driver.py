"""Runs steps in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from os import urandom
from typing import Any, TypeVar

from holdfast.core.contract import Entry
from holdfast.core.effects import (
    Apply,
    ApplyMany,
    Draw,
    Emit,
    Keep,
    Load,
    Now,
    Scan,
    Sleep,
    Steps,
    Swap,
    SwapMany,
    Wait,
    Wall,
)
from holdfast.core.events import Event
from holdfast.core.holds import Attempt, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Micros
from holdfast.core.steps import undo_steps
from holdfast.errors import HoldfastError
from holdfast.runtime import clock
from holdfast.stores.base import Store

R = TypeVar("R")

# How long an interrupted call may take to clean up behind itself.
GRACE: Micros = 5 * SECOND

Handlers = dict[type, Callable[[Any], Any]]


def local_handlers(emit: Callable[[Event], None], keep: Callable[[Hold], None]) -> Handlers:
    """The effects that need no store, and that no driver has to wait for."""
    return {
        Now: clock.monotonic,
        Wall: lambda effect: clock.wall(),
        Draw: lambda effect: urandom(effect.size).hex(),
        Emit: lambda effect: emit(effect.event),
        Keep: lambda effect: keep(effect.hold),
    }


class Driver:
    """The blocking driver over one store."""

    def __init__(
        self,
        store: Store,
        observations: Observations,
        emit: Callable[[Event], None],
        keep: Callable[[Hold], None],
        check: Callable[[], object] = bool,
    ) -> None:
        self._witness = observations
        self._emit = emit
        monotonic = clock.monotonic

        def load(effect: Load) -> tuple[Entry, Micros, Micros]:
            sent = monotonic()
            return store.load(effect.key), sent, monotonic()

        # Who waits may find afterwards that the client was closed meanwhile.
        def wait(effect: Wait) -> Entry | None:
            check()
            found = store.wait(effect.key, effect.version, effect.token, effect.at_most)
            check()
            return found

        def sleep(effect: Sleep) -> None:
            time.sleep(effect.duration / SECOND)
            check()

        self._handlers: Handlers = {
            **local_handlers(emit, keep),
            Load: load,
            Swap: lambda effect: (
                store.swap(effect.key, effect.version, effect.record, effect.wake),
                monotonic(),
            ),
            SwapMany: lambda effect: (store.swap_many(effect.swaps), monotonic()),
            Apply: lambda effect: (
                store.apply(effect.key, effect.command, effect.beat),
                monotonic(),
            ),
            ApplyMany: lambda effect: (store.apply_many(effect.applies), monotonic()),
            Scan: lambda effect: store.scan(effect.prefix, effect.cursor, effect.limit),
            Wait: wait,
            Sleep: sleep,
        }

    def run(self, steps: Steps[R]) -> R:
        """Run to the end. An interrupt ends the steps where they stand."""
        handlers = self._handlers
        try:
            effect = steps.send(None)
            while True:
                try:
                    answer = handlers[type(effect)](effect)
                except Exception as trouble:
                    effect = steps.throw(trouble)
                else:
                    effect = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            steps.close()
            raise

    def undo(self, attempts: Sequence[Attempt]) -> None:
        """Take out what the attempts left in the store; if that fails, the ttl will."""
        if not any(attempt.touched for attempt in attempts):
            return
        try:
            self.run(undo_steps(self._witness, attempts, clock.monotonic() + GRACE))
        except HoldfastError as trouble:
            report_leftover(self._emit, attempts, trouble)


def report_leftover(
    emit: Callable[[Event], None], attempts: Sequence[Attempt], trouble: HoldfastError
) -> None:
    """Say that something may be left, and why."""
    from holdfast.core.events import StoreTrouble

    for attempt in attempts:
        if attempt.touched:
            emit(StoreTrouble(attempt.key, str(trouble), "clean up", again=False))
