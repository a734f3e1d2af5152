"""Wrong about writes: lost replies, and writing without looking."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from holdfast.core import acquiring, releasing, renewing, rules, steps
from holdfast.core.commands import Claim, Decision, Free, Freed, Granted, Renew
from holdfast.core.contract import Conflict, Entry
from holdfast.core.effects import Amend, Steps, Swap
from holdfast.core.holds import Attempt, Hold
from holdfast.core.observations import Observations, View
from holdfast.core.records import NEVER, History, Record
from holdfast.core.steps import Amendment, Answer
from holdfast.errors import Busy, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.testing.sim import calls
from tests.sim.mutants.base import Patches, mutant, relay, wrap_apply


@mutant(60)
def _a_lost_reply_taken_as_refusal() -> Iterator[Patches]:
    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        def failed(effect: Any, trouble: Exception) -> Exception:
            if isinstance(trouble, OutcomeUnknown) and isinstance(command, Claim):
                attempt.touched = False
                return Busy("It was refused.")
            return trouble

        return (yield from relay(inner, failed=failed))

    yield from wrap_apply(wrapper)


@mutant(60)
def _a_lost_heartbeat_reply_taken_as_theft() -> Iterator[Patches]:
    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        def failed(effect: Any, trouble: Exception) -> Exception:
            if isinstance(trouble, OutcomeUnknown) and isinstance(command, Renew):
                return LeaseLost("It was stolen.")
            return trouble

        return (yield from relay(inner, failed=failed))

    yield from wrap_apply(wrapper)


@mutant(2800, seen_at=175)
def _a_conflict_with_oneself_taken_as_somebody_else() -> Iterator[Patches]:
    yield patch.object(Attempt, "shows_in", lambda self, record: False)


@mutant(600, seen_at=160)
def _a_try_in_vain_settles_the_one_before() -> Iterator[Patches]:
    yield patch.object(steps, "worst_known_outcome", lambda trouble, attempt: trouble)


@mutant(60)
def _every_request_may_take_its_longest() -> Iterator[Patches]:
    """Also those of a call whose own time is over by then."""
    yield patch.object(acquiring, "answers_by", lambda *_: NEVER)


@mutant(2000, store="scripted", seen_at=835)
def _why_a_lease_is_lost_may_take_its_longest() -> Iterator[Patches]:
    """Also for a caller whose renewal was to be back by then."""

    def history_steps(observations: Observations, key: str, view: View, by: int) -> Steps[History]:
        return (yield from releasing.history_steps(observations, key, view, NEVER))

    yield patch.object(renewing, "history_steps", history_steps)


@mutant(60)
def _nothing_is_undone() -> Iterator[Patches]:
    def undo_steps(observations: Observations, attempts: Any, until: int) -> Steps[None]:
        yield from ()

    yield patch.object(calls, "undo_steps", undo_steps)


def _overwriting(kind: type) -> Iterator[Patches]:
    """Write again over whatever is there instead."""

    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        def answered(effect: Any, answer: Any) -> Generator[Any, Any, Any]:
            while isinstance(effect, Swap) and isinstance(command, kind):
                outcome = answer[0]
                if not isinstance(outcome, Conflict):
                    break
                answer = yield Swap(effect.key, outcome.entry.version, effect.record, effect.wake)
            return answer

        return (yield from relay(inner, answered=answered))

    return wrap_apply(wrapper)


@mutant(60)
def _acquire_that_loads_and_then_writes_without_compare() -> Iterator[Patches]:
    yield from _overwriting(Claim)


@mutant(60)
def _a_stale_renewal_that_overwrites_the_new_holder() -> Iterator[Patches]:
    yield from _overwriting(Renew)


@mutant(60)
def _release_without_the_token() -> Iterator[Patches]:
    def free(command: Free, record: Record, dead: Any, stamp: Any) -> Decision:
        return Decision(Freed(), Record(record.fence, (), record.queue, stamp.at), ("*",))

    yield patch.dict(rules._RULES, {Free: free})


@mutant(200)
def _a_renewal_that_resurrects_a_lost_lease() -> Iterator[Patches]:
    def renewed(hold: Hold, verdict: Any, sent: Mapping[str, int], got: int) -> None:
        if not isinstance(verdict, Granted):
            raise LeaseLost("It is gone.")
        if hold.state == "lost":
            hold.state = "held"
        hold.lapsed = False
        hold.extend(verdict.holder, sent[verdict.holder.beat])

    yield patch.object(renewing, "_renewed", renewed)


@mutant(800)
def _a_renewal_that_trusts_the_clock_it_read_before_it_stood_still() -> Iterator[Patches]:
    yield patch.object(
        Hold, "valid", lambda self, now: self.state == "held" and now < self.deadline
    )


@mutant(60, store="amending")
def _an_amend_that_decides_on_what_it_saw_before() -> Iterator[Patches]:
    seen: dict[tuple[Observations, str], Entry] = {}
    decide = Amendment.__call__

    def call(self: Amendment, entry: Entry) -> Decision:
        before = seen.setdefault((self.observations, self.key), entry)
        seen[self.observations, self.key] = entry
        return decide(self, replace(before, now=entry.now))

    yield patch.object(Amendment, "__call__", call)


@mutant(200, store="amending")
def _an_amend_that_is_not_sent_again_and_counts_as_refused() -> Iterator[Patches]:
    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        def failed(effect: Any, trouble: Exception) -> Exception:
            if isinstance(effect, Amend) and isinstance(trouble, OutcomeUnknown):
                attempt.touched = attempt.unsettled = False
                return Unavailable("It was refused.")
            return trouble

        return (yield from relay(inner, failed=failed))

    yield from wrap_apply(wrapper)
