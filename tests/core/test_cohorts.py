"""Cohorts: who has the turn, and whether a hold may be passed on. Pure, by hand."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import pytest

from holdfast.core.acquiring import Terms
from holdfast.core.cohorts import (
    SHORT_TURN,
    TURN,
    Cohorts,
    Member,
    acquire_in_line_steps,
)
from holdfast.core.commands import Claim, Granted
from holdfast.core.effects import Emit
from holdfast.core.holds import Attempt, Care, Hold, hold_of
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Holder, Mode, Waiter
from holdfast.errors import Busy
from holdfast.testing.sim.kinds import KINDS

TTL = 30 * SECOND


class Call:
    """One caller: keeps its attempt alive, and counts how often it is woken."""

    def __init__(self, owner: str, ttl: int = TTL, number: int = 0, key: str = "k") -> None:
        self.attempt = Attempt(key, Claim(owner, owner, "exclusive", ttl), number=number)
        self.member = Member(self.attempt, Care(), 0)
        self.woken = 0
        self.member.wake = self._wake

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def cohorts() -> Cohorts:
    """The cohorts of one client."""
    return Cohorts(nullcontext())


def grant(cohorts: Cohorts, call: Call, last: int = 1999, **changes: Any) -> Hold:
    """The store grants what this caller claims, at time 0."""
    holder = Holder(call.member.claim.token, 1000, "a", "exclusive", TTL, 5, 5 + TTL, "b")
    hold = hold_of("k", Granted(holder, last=last), 0, Care())
    for name, value in changes.items():
        setattr(hold, name, value)
    cohorts.granted(call.member, hold)
    return hold


def test_the_first_goes_to_the_store_and_the_others_stand_in_line(cohorts: Cohorts) -> None:
    """One of them is at the store."""
    a, b, c = Call("a"), Call("b"), Call("c")
    assert [cohorts.enter(call.member, Terms(), 0) for call in (a, b, c)] == [True, False, False]
    assert cohorts.turn_of(b.member, 1) is None
    other = Call("d", ttl=TTL + 1)
    assert cohorts.enter(other.member, Terms(), 0)  # by itself
    assert other.member.cohort is None
    assert cohorts.enter(Call("e", key="other key").member, Terms(), 0)


def test_a_hold_is_passed_on_in_order_with_a_number_of_its_own(cohorts: Cohorts) -> None:
    """Token, deadline and ttl are those of the grant; fence, owner, note and care its own."""
    a, b, c = Call("a"), Call("b", number=7), Call("c")
    for call in (a, b, c):
        cohorts.enter(call.member, Terms(), 0)
    first = grant(cohorts, a)
    b.member.care = Care(max_hold=5)
    first.end("released")
    assert cohorts.pass_on(first, 10)
    assert (b.woken, c.woken) == (1, 0)
    turn = cohorts.turn_of(b.member, 11)
    assert turn is not None
    second = turn.hold
    assert second is not None
    assert (second.token, second.deadline, second.renewed) == (first.token, first.deadline, 0)
    assert (second.fence, second.owner, second.attempt) == (1001, "b", 7)
    assert second.care.max_hold == 5
    assert second.valid(11)
    assert second.renewal().passed_on == second.holder
    assert cohorts.was_passed_on(first)
    second.end("released")
    assert cohorts.pass_on(second, 12)
    third = cohorts.given(c.member)
    assert third is not None
    assert third.fence == 1002


@pytest.mark.parametrize(
    ("now", "changes", "passed"),
    [
        (TURN - 1, {}, True),
        (TURN, {}, False),
        (SHORT_TURN - 1, {"contended": True}, True),
        (SHORT_TURN, {"contended": True}, False),
        (1, {"shared": True}, False),
        (1, {"lapsed": True}, False),
        (1, {"deadline": 1}, False),
        (1, {"renewed": -TTL // 6}, False),  # a beat is due
        (1, {"last": 1000}, False),
        (1, {"last": 1001}, True),
    ],
)
def test_when_a_hold_is_passed_on(
    cohorts: Cohorts, now: int, changes: dict[str, Any], passed: bool
) -> None:
    """While it is surely valid, nobody else has part in it, and its time is not over."""
    a, b = Call("a"), Call("b")
    cohorts.enter(a.member, Terms(), 0)
    cohorts.enter(b.member, Terms(), 0)
    hold = grant(cohorts, a, **changes)
    hold.end("released")
    assert cohorts.pass_on(hold, now) is passed
    cohorts.move_on(a.member)
    turn = cohorts.turn_of(b.member, now)
    assert turn is not None
    assert (turn.hold is not None) is passed


def test_who_leaves_the_line_is_passed_over(cohorts: Cohorts) -> None:
    """Also if its call is gone without a word."""
    a, b, c, d = Call("a"), Call("b"), Call("c"), Call("d")
    for call in (a, b, c, d):
        cohorts.enter(call.member, Terms(), 0)
    hold = grant(cohorts, a)
    cohorts.move_on(b.member)
    c.attempt = None  # type: ignore[assignment]
    gc.collect()
    hold.end("released")
    assert cohorts.pass_on(hold, 1)
    assert cohorts.given(d.member) is not None


def test_a_turn_that_is_over_is_taken_over(cohorts: Cohorts) -> None:
    """By the first in line: when the call that claims is gone, or the hold has run out."""
    a, b, c = Call("a"), Call("b"), Call("c")
    for call in (a, b, c):
        cohorts.enter(call.member, Terms(), 0)
    a.attempt = None  # type: ignore[assignment]
    gc.collect()
    assert cohorts.turn_of(c.member, 1) is None
    turn = cohorts.turn_of(b.member, 1)
    assert turn is not None
    assert turn.hold is None
    hold = grant(cohorts, b)
    assert cohorts.turn_of(c.member, hold.deadline - 1) is None
    assert cohorts.turn_of(c.member, hold.deadline) is not None


def test_a_hold_that_ran_out_before_its_heir_woke_up(cohorts: Cohorts) -> None:
    """Then it claims at the store."""
    a, b = Call("a"), Call("b")
    cohorts.enter(a.member, Terms(), 0)
    cohorts.enter(b.member, Terms(), 0)
    hold = grant(cohorts, a)
    hold.end("released")
    assert cohorts.pass_on(hold, 1)
    turn = cohorts.turn_of(b.member, hold.deadline)
    assert turn is not None
    assert turn.hold is None


def test_store_trouble_is_everybodys(cohorts: Cohorts) -> None:
    """The others go to the store by themselves, and know since when it fails."""
    a, b, c = Call("a"), Call("b"), Call("c")
    for call in (a, b, c):
        cohorts.enter(call.member, Terms(), 0)
    cohorts.dissolve(a.member, 77)
    assert [call.attempt.trouble_since for call in (b, c)] == [77, 77]
    assert all(call.member.apart and call.woken for call in (b, c))
    assert cohorts.enter(Call("d").member, Terms(), 0)


def test_who_would_not_wait_is_told_who_holds(cohorts: Cohorts) -> None:
    """Without a request; and goes to the store if nobody of this client surely holds."""
    a, b = Call("a"), Call("b")
    terms = Terms(timeout=0)
    assert cohorts.enter(a.member, terms, 0)
    assert cohorts.enter(b.member, terms, 0)
    hold = grant(cohorts, a)
    assert not cohorts.enter(b.member, terms, 0)
    observations = Observations(KINDS["server"].facts)
    steps = acquire_in_line_steps(observations, cohorts, b.member, b.attempt, terms)
    assert isinstance(next(steps), Emit)
    with pytest.raises(Busy, match="held by a") as busy:
        next(steps)
    assert busy.value.holders[0].owner == "a"
    assert cohorts.enter(b.member, terms, hold.deadline)


def test_who_waits_is_shown_to_the_holder(cohorts: Cohorts) -> None:
    """As if it waited at the store."""
    a, b = Call("a"), Call("b")
    cohorts.enter(a.member, Terms(), 0)
    cohorts.enter(b.member, Terms(), 0)
    hold = grant(cohorts, a)
    assert a.member.cohort is not None
    assert a.member.cohort.waiters(hold) == (Waiter("", "b", "exclusive", TTL, 5, 0, ""),)


def test_when_nobody_is_left_nothing_is_kept(cohorts: Cohorts) -> None:
    """A client may lock a million keys."""
    for key in ("a", "b", "c"):
        call, other = Call("x", key=key), Call("y", key=key)
        cohorts.enter(call.member, Terms(), 0)
        if key != "a":
            cohorts.enter(other.member, Terms(), 0)
            cohorts.move_on(other.member)
        cohorts.move_on(call.member)
    assert cohorts._by_key == {}


def test_who_takes_part() -> None:
    """Exclusive, kept, not with fair=False, and not of a client that does not pass on."""

    def goes_alone(
        terms: Terms, *, mode: Mode = "exclusive", keep: bool = True, pass_on: bool = True
    ) -> bool:
        cohorts, first, call = Cohorts(nullcontext(), pass_on=pass_on), Call("a"), Call("b")
        cohorts.enter(first.member, Terms(), 0)
        grant(cohorts, first)
        call.member.claim = Claim("t", "o", mode, TTL)
        call.member.care = Care(keep=keep)
        return cohorts.enter(call.member, terms, 0)

    assert not goes_alone(Terms())
    assert not goes_alone(Terms(timeout=0, fair=True))
    assert goes_alone(Terms(fair=False))
    assert goes_alone(Terms(), keep=False)
    assert goes_alone(Terms(), mode="shared")
    assert goes_alone(Terms(), pass_on=False)


def test_a_grant_in_the_moment_in_which_the_second_caller_comes(cohorts: Cohorts) -> None:
    """The first one takes no mutex when it is granted the lock. Wherever the second one is by then:
    the hold is the cohort's."""
    a, b = Call("a"), Call("b")
    cohorts.enter(a.member, Terms(), 0)
    holds: list[Hold] = []

    class Interleaved(dict[str, Any]):
        """Calls the grant right after the cohort of a key is noted."""

        def __setitem__(self, key: str, cohort: Any) -> None:
            super().__setitem__(key, cohort)
            holds.append(grant(cohorts, a))

    cohorts._by_key = Interleaved(cohorts._by_key)
    assert not cohorts.enter(b.member, Terms(), 0)
    assert holds[0].member is a.member
    assert cohorts.pass_on(holds[0], 1)


def test_the_fence_of_a_lease_never_changes() -> None:
    """Whatever a renewal brings back: a store that has not heard of the passing on."""
    cohorts, a, b = Cohorts(nullcontext()), Call("a"), Call("b")
    cohorts.enter(a.member, Terms(), 0)
    cohorts.enter(b.member, Terms(), 0)
    hold = grant(cohorts, a)
    hold.end("released")
    cohorts.pass_on(hold, 1)
    heir = cohorts.given(b.member)
    assert heir is not None
    heir.extend(hold.holder, 5)
    assert (heir.fence, heir.owner, heir.unwritten) == (1001, "b", True)
    heir.extend(heir.holder, 6)
    assert not heir.unwritten
