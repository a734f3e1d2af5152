"""A command that is tried again while the store is in trouble, with growing pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.core.effects import NOW, Emit, Sleep, Steps
from holdfast.core.events import StoreTrouble, Tried
from holdfast.core.holds import Attempt
from holdfast.core.observations import Observations
from holdfast.core.records import Micros
from holdfast.core.steps import FIRST_PAUSE, LONGEST_PAUSE, Answer, apply_steps
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable

R = TypeVar("R")


def retry_command_steps(
    observations: Observations, attempt: Attempt, doing: Tried, until: Micros
) -> Steps[Answer]:
    """Carry out an attempt's command, again and again while the store is in trouble."""
    return (
        yield from retry_until_steps(
            lambda now: apply_steps(observations, attempt, attempt.command, now),
            attempt,
            doing,
            until,
        )
    )


def retry_until_steps(
    make_steps: Callable[[Micros], Steps[R]], attempt: Attempt, doing: Tried, until: Micros
) -> Steps[R]:
    """Run steps again and again while the store is in trouble, with growing pauses."""
    attempt.by = until
    pause = FIRST_PAUSE
    before: HoldfastError | None = None
    while True:
        now = yield from NOW
        if before is not None and now >= until:  # the pause took longer than it should
            raise before
        try:
            return (yield from make_steps(now))
        except (Unavailable, OutcomeUnknown) as trouble:
            now = yield from NOW
            if now + pause >= until:
                raise
            before = trouble
        yield from Emit(StoreTrouble(attempt.key, str(before), doing))
        yield from Sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
