"""Wrong about cohorts: passing a hold on inside of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from holdfast.core import cohorts
from holdfast.core.cohorts import Cohort, Cohorts, Member, Turn
from holdfast.core.holds import Hold
from holdfast.core.validity import deadline
from tests.sim.mutants.base import Patches, mutant

_pass_it_on = cohorts.passed_on


@mutant(200)
def _a_hold_that_is_passed_on_with_a_new_deadline() -> Iterator[Patches]:
    def passed_on(hold: Hold, heir: Member, now: int) -> Hold:
        heir_hold = _pass_it_on(hold, heir, now)
        heir_hold.deadline = deadline(now, hold.ttl)
        return heir_hold

    yield patch.object(cohorts, "passed_on", passed_on)


@mutant(200)
def _a_hold_that_is_passed_on_with_the_same_fence() -> Iterator[Patches]:
    def passed_on(hold: Hold, heir: Member, now: int) -> Hold:
        heir_hold = _pass_it_on(hold, heir, now)
        heir_hold.holder = replace(heir_hold.holder, fence=hold.fence)
        return heir_hold

    yield patch.object(cohorts, "passed_on", passed_on)


@mutant(200)
def _a_hold_that_is_passed_on_with_a_fence_of_nobody() -> Iterator[Patches]:
    def passed_on(hold: Hold, heir: Member, now: int) -> Hold:
        heir_hold = _pass_it_on(hold, heir, now)
        heir_hold.holder = replace(heir_hold.holder, fence=hold.last + 1)
        return heir_hold

    yield patch.object(cohorts, "passed_on", passed_on)


@mutant(600)
def _a_lost_hold_that_is_passed_on() -> Iterator[Patches]:
    original = Cohorts.move_on

    def move_on(self: Cohorts, member: Any) -> None:
        cohort: Any = None if member is None else member.cohort
        turn = None if cohort is None else cohort.turn
        if turn is not None and turn.by is member and turn.hold and turn.hold.state == "lost":
            heir = cohort.first()
            if heir is not None:
                cohort.turn = Turn(heir, heir.work, _pass_it_on(turn.hold, heir, turn.hold.renewed))
                heir.wake()
                return
        original(self, member)

    yield patch.object(Cohorts, "move_on", move_on)


@mutant(600)
def _a_hold_that_is_passed_on_for_ever() -> Iterator[Patches]:
    def may_be_passed_on(hold: Hold, now: int) -> bool:
        return hold.fence < hold.last and now < hold.deadline and not hold.shared

    yield patch.object(cohorts, "may_be_passed_on", may_be_passed_on)


@mutant(600, seen_at=141)
def _a_hold_with_a_ticket_that_is_passed_on() -> Iterator[Patches]:
    original = cohorts.may_be_passed_on

    def may_be_passed_on(hold: Hold, now: int) -> bool:
        hold.shared = False
        return original(hold, now)

    yield patch.object(cohorts, "may_be_passed_on", may_be_passed_on)


@mutant(600)
def _a_cancelled_waiter_that_swallows_the_hold() -> Iterator[Patches]:
    yield patch.object(Cohorts, "given", lambda self, member: None)


@mutant(200)
def _a_hold_that_is_passed_on_and_freed() -> Iterator[Patches]:
    original = Cohorts.pass_on

    def pass_on(self: Cohorts, hold: Hold, now: int) -> bool:
        original(self, hold, now)
        return False

    yield patch.object(Cohorts, "pass_on", pass_on)


@mutant(200)
def _a_line_in_which_the_last_is_first() -> Iterator[Patches]:
    def first(self: Cohort) -> Member | None:
        return next(reversed(self.line), None)

    yield patch.object(Cohort, "first", first)


@mutant(600)
def _a_turn_that_nobody_takes_over() -> Iterator[Patches]:
    yield patch.object(Cohorts, "move_on", lambda self, member: None)
    yield patch.object(Turn, "over", lambda self, now: False)
