"""Known-bad variants of the protocol. The simulator must catch every one, or it is blind.

Each is a small patch of the core, undone afterwards. `within` is the number of seeds, from
0 on, in which it must be caught; it is several times what it took when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from holdfast.core import acquiring, holds, keeper, listing, records, rules, steps, validity
from holdfast.core.commands import Claim, Decision, Evict, Free, Freed, Renew, Take
from holdfast.core.contract import Conflict, Interval
from holdfast.core.effects import WALL, Steps, Swap
from holdfast.core.holds import Attempt, Hold
from holdfast.core.records import Record, Waiter
from holdfast.core.steps import Answer
from holdfast.core.witness import Witness
from holdfast.errors import Busy, LeaseLost, OutcomeUnknown
from holdfast.testing.sim import work

Patches = AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutant:
    """One way to get it wrong."""

    name: str
    within: int
    patches: Callable[[], Patches]


MUTANTS: list[Mutant] = []


def mutant(within: int) -> Callable[[Callable[[], Iterator[Patches]]], None]:
    """Register a mutant: a function that yields its patches. Its docstring is its name."""

    def register(make: Callable[[], Iterator[Patches]]) -> None:
        @contextmanager
        def patched() -> Iterator[None]:
            with ExitStack() as stack:
                for each in make():
                    stack.enter_context(each)
                yield

        name = make.__name__.lstrip("_").replace("_", "-")
        MUTANTS.append(Mutant(name, within, patched))

    return register


def wrap_apply(
    wrapper: Callable[[Steps[Answer], Witness, Attempt, Any], Steps[Answer]],
) -> Iterator[Patches]:
    """Put something around `apply_steps`, wherever it is called."""
    original = steps.apply_steps

    def apply_steps(witness: Witness, attempt: Attempt, command: Any, now: int) -> Steps[Answer]:
        return wrapper(original(witness, attempt, command, now), witness, attempt, command)

    yield patch.object(steps, "apply_steps", apply_steps)
    yield patch.object(acquiring, "apply_steps", apply_steps)


def relay(
    inner: Steps[Answer],
    answered: Callable[[Any, Any], Generator[Any, Any, Any]] | None = None,
    failed: Callable[[Any, Exception], Exception] | None = None,
) -> Steps[Answer]:
    """Pass effects on, with a hand in the answers and in the errors."""
    answer: Any = None
    trouble: Exception | None = None
    while True:
        try:
            effect = inner.send(answer) if trouble is None else inner.throw(trouble)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        answer = trouble = None
        try:
            answer = yield effect
        except Exception as exc:
            if failed is None:
                trouble = exc
                continue
            other = failed(effect, exc)
            if other is not exc:
                inner.close()
                raise other from None
            trouble = exc
            continue
        if answered is not None:
            answer = yield from answered(effect, answer)


# --- time -------------------------------------------------------------------------------------


@mutant(60)
def _expiry_by_the_wall_clock_of_a_client() -> Iterator[Patches]:
    walls: dict[int, int] = {}

    def wrapper(inner: Any, witness: Witness, attempt: Attempt, command: Any) -> Steps[Answer]:
        walls[id(witness)] = yield from WALL
        return (yield from inner)

    def dead(self: Witness, key: str, now: Any, m: int) -> Any:
        return lambda party: walls.get(id(self), 0) > party.expires_at > 0

    yield from wrap_apply(wrapper)
    yield patch.object(Witness, "dead", dead)


@mutant(60)
def _deadline_from_after_the_reply() -> Iterator[Patches]:
    def wrapper(inner: Any, witness: Witness, attempt: Attempt, command: Any) -> Steps[Answer]:
        answer: Answer = yield from inner
        attempt.sent = dict.fromkeys(attempt.sent, answer.got)
        return answer

    yield from wrap_apply(wrapper)


@mutant(100)
def _expiry_from_the_clock_of_an_earlier_load() -> Iterator[Patches]:
    yield patch.object(validity.Reading, "upper", lambda self, m: self.now.latest)


@mutant(300)
def _deadline_of_the_last_attempt_though_an_earlier_one_landed() -> Iterator[Patches]:
    class Last(dict[str, int]):
        def __getitem__(self, beat: str) -> int:
            return max(self.values())

    original = Attempt.__init__

    def init(self: Attempt, key: str, command: Any) -> None:
        original(self, key, command)
        self.sent = Last()

    yield patch.object(Attempt, "__init__", init)


@mutant(60)
def _no_margin_for_clock_rates() -> Iterator[Patches]:
    yield patch.object(holds, "deadline", lambda sent, ttl: sent + ttl)


@mutant(100)
def _a_date_clock_taken_as_exact() -> Iterator[Patches]:
    original = Witness.read_clock

    def read_clock(self: Witness, now: Interval | None, sent: int) -> None:
        original(self, now and Interval(now.earliest, now.earliest), sent)

    yield patch.object(Witness, "read_clock", read_clock)


@mutant(100)
def _dead_by_the_latest_that_the_clock_may_show() -> Iterator[Patches]:
    original = Witness.dead

    def dead(self: Witness, key: str, now: Interval | None, m: int) -> Any:
        return original(self, key, now and Interval(now.latest, now.latest), m)

    yield patch.object(Witness, "dead", dead)


@mutant(200)
def _a_clock_reading_counted_from_after_the_reply() -> Iterator[Patches]:
    original = Witness.saw

    def saw(self: Witness, key: str, entry: Any, sent: int, got: int) -> Any:
        return original(self, key, entry, got, got)

    yield patch.object(Witness, "saw", saw)


@mutant(400)
def _a_clock_carried_on_without_regard_to_its_rate() -> Iterator[Patches]:
    yield patch.object(validity.Reading, "upper", lambda self, m: self.now.latest + m - self.sent)


# --- silence ----------------------------------------------------------------------------------


@mutant(600)
def _silence_counted_from_before_the_look() -> Iterator[Patches]:
    original = Witness.saw

    def saw(self: Witness, key: str, entry: Any, sent: int, got: int) -> Any:
        view = original(self, key, entry, sent, got)
        for party, since in self._observed.get(key, {}).items():
            if since == got:
                self._observed[key][party] = sent
        return view

    yield patch.object(Witness, "saw", saw)


@mutant(200)
def _a_renewal_that_keeps_its_beat() -> Iterator[Patches]:
    original = rules._renew

    def renew(command: Any, record: Record, dead: Any, stamp: Any) -> Decision:
        mine = rules.find(record.holders, command.token)
        if mine is not None and not stamp.clocked:
            stamp = replace(stamp, beat=mine.beat)
        return original(command, record, dead, stamp)

    def wrapper(inner: Any, witness: Witness, attempt: Attempt, command: Any) -> Steps[Answer]:
        answer: Answer = yield from inner
        holder = getattr(answer.verdict, "holder", None)
        if holder is not None:
            attempt.sent.setdefault(holder.beat, max(attempt.sent.values(), default=answer.got))
        return answer

    yield patch.dict(rules._RULES, {Renew: renew})
    yield from wrap_apply(wrapper)


@mutant(200)
def _a_silent_holder_given_half_its_ttl() -> Iterator[Patches]:
    original = Witness.dead

    def dead(self: Witness, key: str, now: Interval | None, m: int) -> Any:
        judge = original(self, key, now, m)
        seen = self._observed.get(key, {})
        return lambda p: judge(p) or m - seen.get((p.token, p.beat), m) > p.ttl // 2

    yield patch.object(Witness, "dead", dead)


# --- lost replies -----------------------------------------------------------------------------


@mutant(60)
def _a_lost_reply_taken_as_refusal() -> Iterator[Patches]:
    def wrapper(inner: Any, witness: Witness, attempt: Attempt, command: Any) -> Steps[Answer]:
        def failed(effect: Any, trouble: Exception) -> Exception:
            if isinstance(trouble, OutcomeUnknown) and isinstance(command, Claim):
                attempt.touched = False
                return Busy("It was refused.")
            return trouble

        return (yield from relay(inner, failed=failed))

    yield from wrap_apply(wrapper)


@mutant(60)
def _a_lost_heartbeat_reply_taken_as_theft() -> Iterator[Patches]:
    def wrapper(inner: Any, witness: Witness, attempt: Attempt, command: Any) -> Steps[Answer]:
        def failed(effect: Any, trouble: Exception) -> Exception:
            if isinstance(trouble, OutcomeUnknown) and isinstance(command, Renew):
                return LeaseLost("It was stolen.")
            return trouble

        return (yield from relay(inner, failed=failed))

    yield from wrap_apply(wrapper)


@mutant(400)
def _a_conflict_with_oneself_taken_as_somebody_else() -> Iterator[Patches]:
    yield patch.object(Attempt, "shows_in", lambda self, record: False)


@mutant(60)
def _nothing_is_undone() -> Iterator[Patches]:
    yield patch.object(work, "undo_steps", lambda witness, attempts, until: iter(()))


# --- writing without looking ------------------------------------------------------------------


def _overwriting(kind: type) -> Iterator[Patches]:
    """Write again over whatever is there instead."""

    def wrapper(inner: Any, witness: Witness, attempt: Attempt, command: Any) -> Steps[Answer]:
        def answered(effect: Any, answer: Any) -> Generator[Any, Any, Any]:
            while isinstance(answer, Conflict) and isinstance(command, kind):
                answer = yield Swap(effect.key, answer.entry.version, effect.record, effect.wake)
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
    def renewed(hold: Hold, attempt: Attempt, answer: Answer) -> None:
        holder = getattr(answer.verdict, "holder", None)
        if holder is None:
            raise LeaseLost("It is gone.")
        if hold.state == "lost":
            hold.state = "held"
        hold.lapsed = False
        hold.extend(holder, attempt.sent[holder.beat])

    yield patch.object(steps, "_renewed", renewed)


@mutant(3000)
def _a_renewal_that_trusts_the_clock_it_read_before_it_stood_still() -> Iterator[Patches]:
    yield patch.object(
        Hold, "valid", lambda self, now: self.state == "held" and now < self.deadline
    )


# --- fences -----------------------------------------------------------------------------------


@mutant(400)
def _a_fence_that_restarts_after_deletion() -> Iterator[Patches]:
    yield patch.object(rules, "next_fence", lambda record, at: record.fence + 1)


@mutant(60)
def _a_fence_that_follows_the_clock_only() -> Iterator[Patches]:
    yield patch.object(rules, "next_fence", lambda record, at: at)


@mutant(200)
def _a_taken_lease_that_keeps_its_fence() -> Iterator[Patches]:
    original = rules._take

    def take(command: Take, record: Record, dead: Any, stamp: Any) -> Decision:
        with patch.object(rules, "next_fence", lambda record, at: record.fence):
            return original(command, record, dead, stamp)

    yield patch.dict(rules._RULES, {Take: take})


@mutant(100)
def _an_eviction_that_leaves_the_fence() -> Iterator[Patches]:
    original = rules._evict

    def evict(command: Evict, record: Record, dead: Any, stamp: Any) -> Decision:
        with patch.object(rules, "next_fence", lambda record, at: record.fence):
            return original(command, record, dead, stamp)

    yield patch.dict(rules._RULES, {Evict: evict})


@mutant(3000)
def _a_purge_that_takes_a_wall_clock_for_the_stores() -> Iterator[Patches]:
    yield patch.object(listing, "_long_over", lambda record, at: records.last_used(record) < at)


# --- the queue, the table ---------------------------------------------------------------------


@mutant(100)
def _a_reader_let_in_beside_a_waiting_writer() -> Iterator[Patches]:
    original = rules.fits_beside

    def fits_beside(claim: Any, before: Any) -> bool:
        if claim.mode == "shared":
            before = [party for party in before if not isinstance(party, Waiter)]
        return original(claim, before)

    yield patch.object(rules, "fits_beside", fits_beside)


@mutant(60)
def _a_queue_that_is_overtaken() -> Iterator[Patches]:
    yield patch.object(rules, "_ahead_of", lambda token, queue: ())


@mutant(200)
def _one_permit_too_many() -> Iterator[Patches]:
    original = rules.fits_beside

    def fits_beside(claim: Any, before: Any) -> bool:
        if claim.mode == "counted" and claim.limit == len(before):
            before = before[1:]
        return original(claim, before)

    yield patch.object(rules, "fits_beside", fits_beside)


@mutant(200)
def _the_dead_wait_for_ever() -> Iterator[Patches]:
    original = rules.alive

    def alive(parties: Any, dead: Any) -> Any:
        return original(parties, lambda party: not isinstance(party, Waiter) and dead(party))

    yield patch.object(rules, "alive", alive)


@mutant(400)
def _acquire_all_without_a_fixed_order() -> Iterator[Patches]:
    yield patch.object(acquiring, "canonical", list)


@mutant(400)
def _a_waiter_that_hammers_a_slow_clock() -> Iterator[Patches]:
    original = Witness.dead_from

    def dead_from(self: Witness, key: str, party: Any, now: Any, got: int) -> int:
        exact = now and Interval(now.earliest, now.earliest)
        return original(self, key, party, exact, got)

    yield patch.object(Witness, "dead_from", dead_from)


# --- the keeper -------------------------------------------------------------------------------


@mutant(100)
def _a_keeper_that_stops_after_one_failed_beat() -> Iterator[Patches]:
    original = keeper.Keeper.beat_done

    def beat_done(self: keeper.Keeper, hold: Hold, now: int, *, renewed: bool) -> bool:
        rescued = original(self, hold, now, renewed=renewed)
        if not renewed and hold in self._kept:
            self._kept[hold].next_beat = None
        return rescued

    yield patch.object(keeper.Keeper, "beat_done", beat_done)


@mutant(100)
def _a_keeper_that_tells_no_loss_while_a_beat_hangs() -> Iterator[Patches]:
    original = keeper.Keeper._ring

    def ring(self: keeper.Keeper, kept: Any, now: int, due: Any) -> None:
        if not kept.beating:
            original(self, kept, now, due)

    yield patch.object(keeper.Keeper, "_ring", ring)


@mutant(100)
def _a_keeper_that_tells_no_danger() -> Iterator[Patches]:
    yield patch.object(keeper._Kept, "danger_at", lambda self: self.hold.deadline)


@mutant(60)
def _a_keeper_that_never_beats() -> Iterator[Patches]:
    def plan(self: keeper.Keeper, kept: Any, at: int) -> None:
        kept.next_beat = None

    yield patch.object(keeper.Keeper, "_plan", plan)
