"""What the simulator has found in the core, each as the shortest way to see it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import Claim, Free, Freed, Granted, Renew
from holdfast.core.contract import Applied, Conflict, Entry, Interval, Page, Swapped, exactly
from holdfast.core.effects import Apply, Draw, Effect, Emit, Load, Now, Scan, Swap
from holdfast.core.handing_over import enter_steps
from holdfast.core.holds import Attempt, Care, Hold, hold_of
from holdfast.core.listing import Purged, list_steps, purge_steps, show_steps
from holdfast.core.observations import Observations, View
from holdfast.core.records import EMPTY, SECOND, Holder, Record, Waiter, last_used
from holdfast.core.releasing import undo_steps
from holdfast.core.steps import apply_steps
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.core.waiting import BoundedWait
from holdfast.errors import (
    Busy,
    HoldfastError,
    OutcomeUnknown,
    TicketRefused,
    Unavailable,
    Unsupported,
)
from holdfast.testing.sim.kinds import KINDS
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import simulate
from tests.play import play

TTL = 10 * SECOND


def granted() -> Hold:
    """A hold that was asked for at 0 on the own clock."""
    holder = Holder("t", 1, "me", "exclusive", TTL, 0, TTL, "b")
    return hold_of("k", Granted(holder), 0, Care())


def test_a_write_that_was_sent_twice_below_us_is_known_to_be_ours() -> None:
    """A conflict that shows our own beat is a grant, and an interrupt must undo it."""
    landed: list[Record] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Load):
            return Entry(EMPTY, None, exactly(SECOND)), 0, 0
        if isinstance(effect, Swap):
            assert effect.record is not None
            landed.append(effect.record)
            return Conflict(Entry(effect.record, 1, exactly(SECOND))), 0
        return {Now: 0, Draw: "b1"}.get(type(effect))

    attempt = Attempt("k", Claim("t", "me", "exclusive", TTL))
    hold = play(acquire_steps(Observations(KINDS["server"].facts), attempt, Terms(), 0), answer)
    assert hold.token == "t"
    assert len(landed) == 1
    assert attempt.leftovers() == ("t",)


def test_a_lease_that_was_seen_to_be_over_is_not_renewed() -> None:
    """A beat whose thread stood still after it had read its clock comes too late."""
    hold = granted()
    read_before_the_stall = hold.deadline - 1
    assert hold.valid(read_before_the_stall)
    assert not hold.valid(hold.deadline)
    assert not hold.valid(read_before_the_stall)
    hold.extend(Holder("t", 1, "me", "exclusive", TTL, 0, TTL, "b2"), hold.deadline - 2)
    assert not hold.valid(hold.deadline + 1)


def test_a_record_is_not_dropped_before_the_clock_has_passed_its_fence() -> None:
    """A fence can be ahead of the clock: its writer was slow between clock and request."""
    assert last_used(Record(fence=9 * SECOND, updated_at=SECOND)) >= 9 * SECOND


def test_a_waiter_does_not_ask_a_slow_clock_again_and_again() -> None:
    """A clock of whole seconds shows nothing new for a while: there is no use in asking."""
    observations = Observations(KINDS["seconds"].facts)
    second = Interval(7 * SECOND, 8 * SECOND - 1)
    just_over = Holder("t", 1, "me", "exclusive", TTL, 0, 7 * SECOND, "b")
    assert observations.dead_from("k", just_over, second, 0) >= SECOND // 5
    assert observations.dead_from("k", just_over, exactly(7 * SECOND), 0) < SECOND // 100


def test_purge_leaves_a_holder_alone_that_was_written_without_a_clock() -> None:
    """Its record's times are those of some client's wall clock, which may be years behind."""
    holder = Holder("t", 1, "me", "exclusive", TTL, 0, 0, "b")
    record = Record(fence=1, holders=(holder,), updated_at=1)
    page = Page((("k", Entry(record, 1, exactly(10**15))),))

    def answer(effect: Effect) -> Any:
        assert not isinstance(effect, Swap)
        return page if isinstance(effect, Scan) else 0

    purged = play(
        purge_steps(Observations(KINDS["server"].facts), "", Purged(0, None), 60 * SECOND), answer
    )
    assert purged.dropped == 0


def test_purge_is_refused_where_a_reading_of_the_clock_may_be_missing() -> None:
    """After it, a claim without a reading would start the fence at some wall clock."""
    observations = Observations(KINDS["patchy"].facts)
    with pytest.raises(Unsupported):
        play(purge_steps(observations, "", Purged(0, None), 60 * SECOND), lambda effect: None)


def test_a_remembered_record_answers_nothing_by_itself() -> None:
    """That our token was freed once says nothing of now: it may have claimed again since."""
    observations = Observations(KINDS["server"].facts)
    observations.wrote("k", View(exactly(SECOND), 0, 0, Record(fence=1, freed="t"), 1))
    place = Waiter("t", "me", "exclusive", TTL, 0, 5 * SECOND, "b")
    there = Entry(Record(fence=1, queue=(place,)), 2, exactly(SECOND))
    written: list[Record | None] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Swap):
            written.append(effect.record)
            return Swapped(3, exactly(SECOND)), 0
        return {Now: 0, Draw: "b1", Load: (there, 0, 0)}[type(effect)]

    attempt = Attempt("k", Claim("t", "me", "exclusive", TTL))
    attempt.touched = True
    play(undo_steps(observations, (attempt,), SECOND), answer)
    assert [record and record.queue for record in written] == [()]


def test_a_timeout_is_kept_though_no_write_is_ever_answered() -> None:
    """A store that answers reads and no writes must not hold a caller for ever."""
    clock = iter(range(0, 1000 * SECOND, SECOND // 2))

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Swap):
            raise OutcomeUnknown
        if isinstance(effect, Now):
            return next(clock)
        entry = Entry(EMPTY, None, exactly(SECOND))
        return {Draw: "b1", Load: (entry, 0, 0)}.get(type(effect))

    attempt = Attempt("k", Claim("t", "me", "exclusive", TTL))
    observations = Observations(KINDS["server"].facts)
    with pytest.raises(OutcomeUnknown):
        play(acquire_steps(observations, attempt, Terms(5 * SECOND), 0), answer)
    assert next(clock) < 20 * SECOND


def test_what_was_given_back_is_claimed_again_under_another_token() -> None:
    """The `Free` of the first token may arrive twice, and must not end the second grant."""
    clock = iter([2 * TTL, *range(2 * TTL, 3 * TTL, SECOND)])
    commands: list[Any] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Apply):
            assert isinstance(effect.command, (Claim, Free))
            commands.append(effect.command)
            holder = Holder(effect.command.token, 1, "me", "exclusive", TTL, 0, TTL, effect.beat)
            verdict = Freed() if isinstance(effect.command, Free) else Granted(holder)
            return Applied(verdict, 1, exactly(SECOND)), next(clock)
        return {Now: 2 * TTL, Draw: f"b{len(commands)}"}.get(type(effect))

    attempt = Attempt("k", Claim("first", "me", "exclusive", TTL))
    observations = Observations(KINDS["scripted"].facts)
    hold = play(acquire_steps(observations, attempt, Terms(), 0), answer)
    assert [type(command) for command in commands] == [Claim, Free, Claim]
    assert commands[1].token == "first"
    assert hold.token != "first"
    assert attempt.leftovers() == (hold.token,)


@pytest.mark.parametrize("trouble", [Unavailable, OutcomeUnknown])
def test_what_came_too_late_is_given_back_though_the_store_is_in_trouble(
    trouble: type[HoldfastError],
) -> None:
    """The `Free` of a lease that ran out on its way is tried again, like all of an acquire."""
    commands: list[Any] = []
    told: list[str] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Apply):
            assert isinstance(effect.command, (Claim, Free))
            commands.append(effect.command)
            if isinstance(effect.command, Free):
                if len(commands) < 4:
                    raise trouble("Not now.")
                return Applied(Freed(), 1, exactly(SECOND)), 2 * TTL
            holder = Holder(effect.command.token, 1, "me", "exclusive", TTL, 0, TTL, effect.beat)
            return Applied(Granted(holder), 1, exactly(SECOND)), 2 * TTL
        if isinstance(effect, Emit):
            told.append(type(effect.event).__name__)
        return {Now: 2 * TTL, Draw: f"b{len(commands)}"}.get(type(effect))

    attempt = Attempt("k", Claim("first", "me", "exclusive", TTL))
    observations = Observations(KINDS["scripted"].facts)
    hold = play(acquire_steps(observations, attempt, Terms(), 0), answer)
    assert [type(command) for command in commands] == [Claim, Free, Free, Free, Claim]
    assert {command.token for command in commands[:4]} == {"first"}
    assert set(told) == {"StoreTrouble"}
    assert attempt.leftovers() == (hold.token,)


def test_what_came_too_late_and_cannot_be_given_back_is_left_to_be_undone() -> None:
    """When there is no time to try again, nobody says that nothing was done, and the caller's undo
    knows what may still be there."""

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Apply):
            if isinstance(effect.command, Free):
                raise Unavailable("Not now.")
            holder = Holder("t", 1, "me", "exclusive", TTL, 0, TTL, effect.beat)
            return Applied(Granted(holder), 1, exactly(SECOND)), 2 * TTL
        return {Now: 2 * TTL, Draw: "b1"}.get(type(effect))

    attempt = Attempt("k", Claim("t", "me", "exclusive", TTL))
    observations = Observations(KINDS["scripted"].facts)
    with pytest.raises(OutcomeUnknown, match="Not now"):
        play(acquire_steps(observations, attempt, Terms(timeout=0), 0), answer)
    assert attempt.leftovers() == ("t",)


def test_purge_counts_only_what_it_dropped() -> None:
    """A record that somebody used meanwhile was not dropped."""
    page = Page((("k", Entry(Record(fence=1, updated_at=1), 1, exactly(10**15))),))

    def answer(effect: Effect) -> Any:
        return (Conflict(Entry()), 0) if isinstance(effect, Swap) else page

    purged = play(
        purge_steps(Observations(KINDS["server"].facts), "", Purged(0, None), 60 * SECOND), answer
    )
    assert purged.dropped == 0


# --- a slow reply ---------------------------------------------------------------------------

SLOW = 2 * TTL  # how long the reply was on its way


class SlowReply:
    """A store whose replies take longer than the ttl of a holder that renews all the time. The
    record was read when the request came, and the clock, where there is one, right before
    the reply left."""

    def __init__(self, clock: str) -> None:
        expires_at = 0 if clock == "observed" else TTL + SECOND
        self.holder = Holder("t", 1, "you", "exclusive", TTL, 0, expires_at, "b")
        self.record = Record(fence=1, holders=(self.holder,))
        self.now = None if clock == "observed" else exactly(SECOND + SLOW)
        self.clock = iter([SECOND, SECOND + SLOW])
        self.observations = Observations(KINDS[clock].facts)
        # It was seen once before, when it had just been written.
        first = None if clock == "observed" else exactly(SECOND)
        self.observations.saw("k", Entry(self.record, 1, first), 0, 0)

    def __call__(self, effect: Effect) -> Any:
        entry = Entry(self.record, 1, self.now)
        if isinstance(effect, Load):
            return entry, SECOND, SECOND + SLOW
        if isinstance(effect, Scan):
            return Page((("k", entry),))
        if isinstance(effect, Now):
            return next(self.clock, SECOND + SLOW)
        assert not isinstance(effect, Swap)
        return "b1" if isinstance(effect, Draw) else None


@pytest.mark.parametrize("clock", ["observed", "dated"])
def test_a_slow_reply_makes_nobody_look_dead(clock: str) -> None:
    """Who held when the request left may have renewed before the reply came."""
    slow = SlowReply(clock)
    assert play(show_steps(slow.observations, "k"), slow).holders == (slow.holder,)
    slow = SlowReply(clock)
    (seen,) = play(list_steps(slow.observations, "", None), slow).locks
    assert seen.holders == (slow.holder,)
    slow = SlowReply(clock)
    with pytest.raises(Busy):
        play(wait_until_free_steps(slow.observations, BoundedWait("k", "me", 0, 0, 0)), slow)


def test_a_slow_reply_ends_no_lease_that_another_party_keeps_alive() -> None:
    """A party of a shared lease that looked slowly is not told that the lease ran out."""
    slow = SlowReply("observed")
    written: list[Record | None] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Swap):
            written.append(effect.record)
            return Swapped(2), SECOND + SLOW
        return slow(effect)

    attempt = Attempt("k", Renew("t"))
    verdict, _ = play(apply_steps(slow.observations, attempt, attempt.command, 0), answer)
    assert isinstance(verdict, Granted)
    assert len(written) == 1


def test_a_refused_ticket_names_a_holder_though_the_reply_was_slow() -> None:
    """`TicketRefused` does not say that nobody holds what somebody does."""
    slow = SlowReply("observed")
    entering = enter_steps(slow.observations, Attempt("k", Renew("old")), Care(), 0)
    with pytest.raises(TicketRefused, match="held by you"):
        play(entering, slow)


def test_the_history_that_showed_it() -> None:
    """It took about 59,000 histories to find this one."""
    assert simulate(Options(777058976)).violation is None
