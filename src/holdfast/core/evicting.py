"""What operators ask for: evict holders or waiters, replace a record that cannot be used."""

from __future__ import annotations

from holdfast.core.commands import Evict, Evicted
from holdfast.core.contract import Entry
from holdfast.core.effects import WALL, Load, Steps, Swap
from holdfast.core.holds import Attempt
from holdfast.core.observations import Observations
from holdfast.core.records import LARGEST_FENCE, Holder, Micros, Mode, Record, Waiter
from holdfast.core.retrying import retry_command_steps, retry_until_steps
from holdfast.core.steps import corrupt, look_steps, worst_known_outcome
from holdfast.core.validity import Reading
from holdfast.errors import CorruptRecord, HoldfastError, OutcomeUnknown


def evict_steps(
    observations: Observations,
    key: str,
    fence: int | None,
    until: Micros,
    operator: str = "",
    reason: str = "",
) -> Steps[Evicted]:
    """Evict the current holders, or only the one with `fence`. Returns those evicted.

    The first load decides which grants are to go. So however often the command is sent, no later
    grant goes, and all that went are returned although a reply was lost (also one whose holder
    released it by itself after the load). A grant that was passed on meanwhile goes under its new
    fence. A record that cannot be read is replaced by an empty one, unless a later release wrote
    it.
    """
    attempt = Attempt(key, Evict(()))
    out: dict[tuple[str, Micros], Holder] = {}
    try:
        record = yield from _look_steps(observations, attempt, until)
        if record.fence >= LARGEST_FENCE:
            raise corrupt(key, Entry(record))
        going = [
            h
            for h in record.holders
            if fence is None or has_fence(fence, h.mode, h.fence, record.fence)
        ]
        while going:
            out.update({_grant(holder): holder for holder in going})
            attempt.command = Evict(tuple(one.fence for one in going), operator, reason)
            verdict, _ = yield from retry_command_steps(observations, attempt, "evict", until)
            if isinstance(verdict, Evicted) and len(verdict.holders) == len(going):
                break
            attempt.unsettled = True  # perhaps an earlier try got through
            record = yield from _look_steps(observations, attempt, until)
            going = [holder for holder in record.holders if _grant(holder) in out]
    except CorruptRecord as unusable:
        if unusable.newer:
            raise
        yield from retry_until_steps(
            lambda now: _replace_corrupt_steps(observations, attempt), attempt, "evict", until
        )
        return Evicted(())
    return Evicted(tuple(out.values()))


def evict_waiters_steps(
    observations: Observations, key: str, until: Micros, operator: str = "", reason: str = ""
) -> Steps[tuple[Waiter, ...]]:
    """Remove the places of those who wait now. Returns them. Whoever is alive and goes on waiting
    takes a new place, at the end of the queue."""
    attempt = Attempt(key, Evict(()))
    waiters = (yield from _look_steps(observations, attempt, until)).queue
    if waiters:
        tokens = tuple(waiter.token for waiter in waiters)
        attempt.command = Evict((), operator, reason, tokens)
        yield from retry_command_steps(observations, attempt, "evict", until)
    return waiters


def _look_steps(observations: Observations, attempt: Attempt, until: Micros) -> Steps[Record]:
    try:
        view = yield from retry_until_steps(
            lambda now: look_steps(observations, attempt.key, until), attempt, "evict", until
        )
    except HoldfastError as trouble:
        raise worst_known_outcome(trouble, attempt) from trouble.__cause__
    return view.record


def _grant(holder: Holder) -> tuple[str, Micros]:
    """Returns what a grant keeps when it is passed on, and no other grant has."""
    return holder.token, holder.acquired_at


def has_fence(fence: int, mode: Mode, own: int, largest: int) -> bool:
    """Whether a grant has this fence: as its own, or of a lease to which it was passed on.

    An exclusive grant has a range of numbers, whose last one is the `largest` of the record.
    """
    return own <= fence <= largest if mode == "exclusive" else fence == own


def _replace_corrupt_steps(observations: Observations, attempt: Attempt) -> Steps[None]:
    key = attempt.key
    try:
        entry, sent, got = yield from Load(key, attempt.by)
        attempt.saw(entry.version, entry.record)
        if entry.newer:
            raise corrupt(key, entry)
        if entry.fault is None and entry.record.fence < LARGEST_FENCE:
            return
        observations.read_clock(Reading(entry.now, sent, got))
        at = entry.now.latest if entry.now is not None else (yield from WALL)
        attempt.expected = entry.version
        yield from Swap(key, entry.version, Record(fence=at, updated_at=at), ("*",), attempt.by)
    except OutcomeUnknown:
        attempt.unsettled = True
        raise
    except HoldfastError as trouble:
        raise worst_known_outcome(trouble, attempt) from trouble.__cause__
