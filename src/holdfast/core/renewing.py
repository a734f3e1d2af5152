"""Renewing holds: one by one, or many in one trip. A renewal is called a beat.

A beat that fails is the keeper's to try again, and soon.

 1. What cannot be renewed without a look at its record is renewed on its own, after the batch.
 2. A batch that fails as a whole is not taken apart at once: most likely it is the store that
    is in trouble, and a hundred requests that time out one after the other would take longer
    than the leases have. When these beat again, they go alone, in case one of them is to blame.
 3. When two that go alone fail for the store's sake, one after the other, the rest is left for
    the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from holdfast.core import rules
from holdfast.core.commands import Granted, Verdict
from holdfast.core.contract import Applied, Conflict, Swapped
from holdfast.core.effects import NOW, Apply, ApplyMany, Draw, Steps, Swap, SwapMany
from holdfast.core.holds import Attempt, Hold
from holdfast.core.observations import Observations, View
from holdfast.core.records import EMPTY, NEVER, History, Micros
from holdfast.core.releasing import history_steps
from holdfast.core.steps import BEAT_BYTES, apply_steps
from holdfast.core.validity import Reading
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, Unavailable

# So many failures in a row are the store's trouble, and not that of one record.
STORE_IS_IN_TROUBLE = 2


def renew_steps(observations: Observations, hold: Hold, by: Micros = NEVER) -> Steps[None]:
    """Renew one hold, or raise `LeaseLost` because it is gone. An answer that comes after `by`, or
    after the hold's deadline, is of no use."""
    now = yield from NOW
    attempt = Attempt(hold.key, hold.renewal(), by=min(by, hold.deadline))
    verdict, view = yield from apply_steps(observations, attempt, attempt.command, now)
    history: History = UNSET
    if not isinstance(verdict, Granted):
        until = min(by, hold.deadline)  # to know why is not worth being late
        history = yield from history_steps(observations, hold.key, view, until)
    _renewed(hold, verdict, attempt.sent, view.got, history)


def _renewed(
    hold: Hold,
    verdict: Verdict,
    sent: Mapping[str, Micros],
    got: Micros,
    history: History = UNSET,
) -> None:
    if not isinstance(verdict, Granted):
        why = hold.why_gone(history)
        raise _lost(
            hold, why or "its record is gone: it was evicted, released elsewhere, or ran out"
        )
    if not hold.valid(got):
        raise _lost(hold, "its renewal came back too late")
    hold.extend(verdict.holder, sent[verdict.holder.beat])
    hold.contended = bool(verdict.wanted)
    hold.wanted = verdict.wanted
    if hold.member is not None and hold.member.cohort is not None:
        hold.wanted += hold.member.cohort.waiters(hold)


def _lost(hold: Hold, why: str) -> LeaseLost:
    return LeaseLost(f"The lease on {hold.key!r} is lost: {why}.", key=hold.key, why=why)


def renew_many_steps(
    observations: Observations, holds: Sequence[Hold]
) -> Steps[list[HoldfastError | None]]:
    """Renew many holds in one trip. Returns an error or None for each, in their order. What the
    batch cannot renew is renewed by itself after it."""
    now = yield from NOW
    drawn = yield from Draw(BEAT_BYTES * len(holds))
    size = len(drawn) // len(holds)
    sent = {drawn[at : at + size]: now for at in range(0, len(drawn), size)}
    if observations.facts.scripted:
        return (yield from _by_script_steps(observations, holds, sent, now))
    return (yield from _by_swap_steps(observations, holds, sent, now))


def _by_script_steps(
    observations: Observations, holds: Sequence[Hold], sent: Mapping[str, Micros], now: Micros
) -> Steps[list[HoldfastError | None]]:
    applies = [
        Apply(hold.key, hold.renewal(hold.holder), beat)
        for hold, beat in zip(holds, sent, strict=True)
    ]
    outcomes, got = yield from ApplyMany(tuple(applies), _useful_by(holds))
    last = outcomes[-1]
    if isinstance(last, Applied):
        observations.read_clock(Reading(last.now, now, got))
    results = []
    for hold, outcome in zip(holds, outcomes, strict=True):
        history: History = UNSET
        if isinstance(outcome, Applied) and not isinstance(outcome.verdict, Granted):
            view = View(outcome.now, now, got, EMPTY, outcome.version)
            history = yield from history_steps(observations, hold.key, view, hold.deadline)
        results.append(_renewed_by_script(hold, outcome, sent, got, history))
    return results


def _useful_by(holds: Sequence[Hold]) -> Micros:
    """Returns until when an answer helps any of these holds."""
    return max(hold.deadline for hold in holds)


def _renewed_by_script(
    hold: Hold,
    outcome: Applied | Exception,
    sent: Mapping[str, Micros],
    got: Micros,
    history: History,
) -> HoldfastError | None:
    if isinstance(outcome, HoldfastError):
        return outcome
    if isinstance(outcome, Exception):
        return OutcomeUnknown(f"The renewal failed in an unexpected way: {outcome!r}")
    return _outcome(hold, outcome.verdict, sent, got, history)


def _by_swap_steps(
    observations: Observations, holds: Sequence[Hold], sent: Mapping[str, Micros], now: Micros
) -> Steps[list[HoldfastError | None]]:
    beats = [_Beat(hold) for hold in holds]
    # Of several holds on one key only one can be in a batch; the others follow from its write.
    first = {beat.hold.key: beat for beat in reversed(beats)}
    for beat, nonce in zip(beats, sent, strict=True):
        if first[beat.hold.key] is beat:
            beat.prepare(observations, nonce, now)
    ready = [beat for beat in beats if beat.swap is not None]
    swaps = tuple(beat.swap for beat in ready if beat.swap is not None)
    outcomes, got = (yield from SwapMany(swaps, _useful_by(holds))) if swaps else ((), now)
    for beat, outcome in zip(ready, outcomes, strict=True):
        beat.landed(observations, outcome, now, got)
    troubles = [outcome for outcome in outcomes if isinstance(outcome, HoldfastError)]
    if len(troubles) == len(ready) > 1:
        for beat, trouble in zip(ready, troubles, strict=True):
            beat.trouble = trouble
    return (yield from _settle_steps(observations, beats, sent))


class _Beat:
    """One renewal in a batch."""

    __slots__ = ("got", "hold", "swap", "trouble", "verdict")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.swap: Swap | None = None
        self.verdict: Verdict | None = None
        self.got: Micros | None = None  # when it came back, if it was done
        self.trouble: HoldfastError | None = None  # what the whole batch met

    def prepare(self, observations: Observations, nonce: str, now: Micros) -> None:
        """Prepare the swap, if the hold can be renewed without a load."""
        hold = self.hold
        view, stamp = observations.recall(hold.key), observations.reading.stamp(now, nonce)
        if view is None or stamp is None:
            return
        dead = observations.dead(hold.key, view.now, now)
        decision = rules.decide(hold.renewal(), view.record, dead, stamp)
        if decision.record is not None:
            self.swap = Swap(hold.key, view.version, decision.record)
            self.verdict = decision.verdict

    def landed(
        self, observations: Observations, outcome: object, sent: Micros, got: Micros
    ) -> None:
        """Note the outcome of the batch. A swap that was not done is left to be tried by itself."""
        if not isinstance(outcome, Swapped) or self.swap is None or self.swap.record is None:
            observations.forget(self.hold.key)
            if isinstance(outcome, Conflict):
                observations.expect(self.hold.key, outcome.entry, got)
            return
        self.got = got
        view = View(outcome.now, sent, got, self.swap.record, outcome.version)
        observations.wrote(self.hold.key, view)


def _settle_steps(
    observations: Observations, beats: Sequence[_Beat], sent: Mapping[str, Micros]
) -> Steps[list[HoldfastError | None]]:
    results: list[HoldfastError | None] = []
    failures: list[HoldfastError] = []  # in a row
    for beat in beats:
        if beat.trouble is not None:
            results.append(beat.trouble)
        elif beat.verdict is not None and beat.got is not None:
            results.append(_outcome(beat.hold, beat.verdict, sent, beat.got))
        elif len(failures) >= STORE_IS_IN_TROUBLE:
            results.append(failures[-1])
        else:
            result = yield from _alone_steps(observations, beat.hold)
            if isinstance(result, (Unavailable, OutcomeUnknown)):
                failures.append(result)
            else:
                failures.clear()
            results.append(result)
    return results


def _alone_steps(observations: Observations, hold: Hold) -> Steps[HoldfastError | None]:
    try:
        yield from renew_steps(observations, hold)
    except HoldfastError as trouble:
        return trouble
    return None


def _outcome(
    hold: Hold,
    verdict: Verdict,
    sent: Mapping[str, Micros],
    got: Micros,
    history: History = UNSET,
) -> HoldfastError | None:
    try:
        _renewed(hold, verdict, sent, got, history)
    except LeaseLost as lost:
        return lost
    return None
