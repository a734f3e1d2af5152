"""An operator's word: throwing holders out, and replacing a record that cannot be used."""

from __future__ import annotations

from holdfast.core.commands import Evict, Evicted
from holdfast.core.contract import Entry
from holdfast.core.effects import WALL, Load, Steps, Swap
from holdfast.core.holds import Attempt
from holdfast.core.observations import Observations
from holdfast.core.records import LARGEST_FENCE, Micros, Record
from holdfast.core.steps import (
    corrupt,
    look_steps,
    retry_command_steps,
    retry_until_steps,
    worst_known_outcome,
)
from holdfast.core.validity import Reading
from holdfast.errors import CorruptRecord, HoldfastError, OutcomeUnknown


def evict_steps(
    observations: Observations, key: str, fence: int | None, until: Micros
) -> Steps[Evicted]:
    """Evict the current holders, or only the one with `fence`. Returns those evicted.

    The first load decides whom to evict. So however often the command is sent, nobody goes who
    came later, and all are returned although a reply was lost (also one that released by itself
    after the load). A record that cannot be read is replaced by an empty one, unless a later
    release wrote it.
    """
    attempt = Attempt(key, Evict(()))
    try:
        view = yield from retry_until_steps(
            lambda now: look_steps(observations, key), attempt, "evict", until
        )
        if view.record.fence >= LARGEST_FENCE:
            raise corrupt(key, Entry(view.record))
        out = tuple(h for h in view.record.holders if fence is None or h.fence == fence)
        if out:
            attempt.command = Evict(tuple(holder.fence for holder in out))
            yield from retry_command_steps(observations, attempt, "evict", until)
    except CorruptRecord as unusable:
        if unusable.newer:
            raise
        yield from retry_until_steps(
            lambda now: _replace_corrupt_steps(observations, attempt), attempt, "evict", until
        )
        return Evicted(())
    return Evicted(out)


def _replace_corrupt_steps(observations: Observations, attempt: Attempt) -> Steps[None]:
    key = attempt.key
    try:
        entry, sent, got = yield from Load(key)
        attempt.saw_version(entry.version)
        if entry.newer:
            raise corrupt(key, entry)
        if entry.fault is None and entry.record.fence < LARGEST_FENCE:
            return
        observations.read_clock(Reading(entry.now, sent, got))
        at = entry.now.latest if entry.now is not None else (yield from WALL)
        attempt.expected = entry.version
        yield from Swap(key, entry.version, Record(fence=at, updated_at=at), ("*",))
    except OutcomeUnknown:
        attempt.unsettled = True
        raise
    except HoldfastError as trouble:
        raise worst_known_outcome(trouble, attempt) from trouble.__cause__
