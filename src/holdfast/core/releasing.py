"""The end of a hold: release it, or undo what an attempt that failed has left in the store."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from holdfast.core.commands import Free, Freed
from holdfast.core.effects import NOW, Steps
from holdfast.core.holds import NO_BEAT, Attempt
from holdfast.core.observations import Observations, View
from holdfast.core.records import History, Micros
from holdfast.core.retrying import retry_command_steps
from holdfast.core.steps import apply_steps, look_steps
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable


def history_steps(observations: Observations, key: str, view: View, by: Micros) -> Steps[History]:
    """Returns the history of a key whose record has nothing of ours. A store that runs the rules
    shows no record with its verdict, so it is asked once more. UNSET if it does not answer."""
    if not (observations.facts.scripted and observations.facts.history):
        return view.record.history
    try:
        return (yield from look_steps(observations, key, by)).record.history
    except HoldfastError:
        return UNSET


def release_steps(
    observations: Observations, attempt: Attempt, now: Micros, until: Micros
) -> Steps[bool]:
    """Free a hold. Returns False if there was nothing left to free.

    The caller has ended the hold before, so that no beat outlives the release.
    """
    attempt.by = until
    try:
        verdict, view = yield from apply_steps(observations, attempt, attempt.command, now)
    except (Unavailable, OutcomeUnknown):
        if (yield from NOW) >= until:
            raise
        verdict, view = yield from retry_command_steps(observations, attempt, "release", until)
    freed = type(verdict) is Freed or attempt.doubted
    if not freed:
        attempt.history = yield from history_steps(observations, attempt.key, view, until)
    return freed


def undo_steps(
    observations: Observations, attempts: Iterable[Attempt], until: Micros
) -> Steps[None]:
    """Remove from the store whatever these attempts may have left there."""
    for attempt in attempts:
        for token in attempt.leftovers():
            free = Attempt(attempt.key, Free(token), NO_BEAT)
            yield from retry_command_steps(observations, free, "clean up", until)
        attempt.touched = False


def check_undone(attempts: Iterable[Attempt], why: BaseException) -> None:
    """Raise `OutcomeUnknown` where attempts failed with "surely not done", but what they had left
    in the store on the way has not been taken out again."""
    if isinstance(why, (Unavailable, Misconfigured)) and any(one.touched for one in attempts):
        raise OutcomeUnknown(
            f"A place in the queue or a grant of this call may be left in the store, until its ttl "
            f"ends it: {why}"
        ) from why
