"""The effects that need no store: both drivers answer them in the same way, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import urandom
from typing import Any

from holdfast.core.effects import Draw, Emit, Keep, Now, Wall
from holdfast.core.events import Event, StoreTrouble
from holdfast.core.holds import Attempt, Hold
from holdfast.errors import HoldfastError
from holdfast.runtime import clock

Handlers = dict[type, Callable[[Any], Any]]


def local_effects(emit: Callable[[Event], None], keep: Callable[[Hold], None]) -> Handlers:
    """Returns the functions that answer these effects."""
    return {
        Now: clock.monotonic,
        Wall: lambda effect: clock.wall(),
        Draw: lambda effect: urandom(effect.size).hex(),
        Emit: lambda effect: emit(effect.event),
        Keep: lambda effect: keep(effect.hold),
    }


def report_leftover(
    emit: Callable[[Event], None], attempts: Sequence[Attempt], trouble: HoldfastError
) -> None:
    """Emit that something may be left in the store, and why."""
    for attempt in attempts:
        if attempt.touched:
            emit(StoreTrouble(attempt.key, str(trouble), "clean up", again=False))
