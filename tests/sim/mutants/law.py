"""Wrong about the law: fences, the queue, the table, the order of keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from holdfast.core import acquiring, rules
from holdfast.core.commands import FREED, Decision, Evict, Free, Take
from holdfast.core.contract import Interval
from holdfast.core.holds import Hold
from holdfast.core.observations import Observations
from holdfast.core.records import Record, Waiter
from holdfast.core.validity import deadline
from tests.sim.mutants.base import Patches, mutant


@mutant(400)
def _a_fence_that_restarts_after_deletion() -> Iterator[Patches]:
    yield patch.object(rules, "next_fence", lambda record, stamp: record.fence + 1)


@mutant(60)
def _a_fence_that_follows_the_clock_only() -> Iterator[Patches]:
    yield patch.object(rules, "next_fence", lambda record, stamp: stamp.reached or stamp.at)


@mutant(200)
def _a_taken_lease_that_keeps_its_fence() -> Iterator[Patches]:
    original = rules._take

    def take(command: Take, record: Record, dead: Any, stamp: Any) -> Decision:
        with patch.object(rules, "next_fence", lambda record, stamp: record.fence):
            return original(command, record, dead, stamp)

    yield patch.dict(rules._RULES, {Take: take})


@mutant(100)
def _an_eviction_that_leaves_the_fence() -> Iterator[Patches]:
    original = rules._evict

    def evict(command: Evict, record: Record, dead: Any, stamp: Any) -> Decision:
        with patch.object(rules, "next_fence", lambda record, stamp: record.fence):
            return original(command, record, dead, stamp)

    yield patch.dict(rules._RULES, {Evict: evict})


@mutant(100)
def _an_eviction_of_whoever_is_there() -> Iterator[Patches]:
    original = rules._evict

    def evict(command: Evict, record: Record, dead: Any, stamp: Any) -> Decision:
        everyone = Evict(tuple(holder.fence for holder in record.holders))
        return original(everyone, record, dead, stamp)

    yield patch.dict(rules._RULES, {Evict: evict})


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


@mutant(600, seen_at=415)
def _one_permit_too_many() -> Iterator[Patches]:
    original = rules.fits_beside

    def fits_beside(claim: Any, before: Any) -> bool:
        one_more = claim.mode == "counted" and len(before) > 1 and before[0].mode == "counted"
        return original(claim, before[1:] if one_more else before)

    yield patch.object(rules, "fits_beside", fits_beside)


@mutant(200)
def _the_dead_wait_for_ever() -> Iterator[Patches]:
    original = rules.alive

    def alive(parties: Any, dead: Any) -> Any:
        return original(parties, lambda party: not isinstance(party, Waiter) and dead(party))

    yield patch.object(rules, "alive", alive)


@mutant(800)
def _acquire_all_without_a_fixed_order() -> Iterator[Patches]:
    yield patch.object(acquiring, "canonical", list)


@mutant(1000, "dated", seen_at=106)
def _a_waiter_that_hammers_a_slow_clock() -> Iterator[Patches]:
    original = Observations.dead_from

    def dead_from(self: Observations, key: str, party: Any, now: Any, got: int) -> int:
        exact = now and Interval(now.earliest, now.earliest)
        return original(self, key, party, exact, got)

    yield patch.object(Observations, "dead_from", dead_from)


@mutant(60, store="amending")
def _an_heir_that_is_not_the_first_in_the_queue() -> Iterator[Patches]:
    original = rules._bequeathed

    def bequeathed(heir: str, freed: Record, dead: Any, stamp: Any) -> Record | None:
        last = freed.queue[-1:]
        swapped = replace(freed, queue=(*last, *freed.queue[:-1]))
        return original(last[0].token, swapped, dead, stamp) if last else None

    yield patch.object(rules, "_bequeathed", bequeathed)


@mutant(60, store="amending")
def _an_heir_with_the_fence_of_the_one_before() -> Iterator[Patches]:
    original = rules._bequeathed

    def bequeathed(heir: str, freed: Record, dead: Any, stamp: Any) -> Record | None:
        with patch.object(rules, "fences", lambda mode, record, stamp: (record.fence,) * 2):
            return original(heir, freed, dead, stamp)

    yield patch.object(rules, "_bequeathed", bequeathed)


@mutant(100, store="amending")
def _an_heir_whose_lease_begins_when_it_looks() -> Iterator[Patches]:
    def sent_at(attempt: Any, granted: Any, view: Any) -> int:
        sent: int = attempt.sent_at(granted.holder.beat)
        return max(sent, view.sent) if attempt.command.inherits else sent

    yield patch.object(acquiring, "_sent_at", sent_at)


@mutant(60, store="amending")
def _an_heir_that_stays_in_the_queue() -> Iterator[Patches]:
    original = rules._bequeathed

    def bequeathed(heir: str, freed: Record, dead: Any, stamp: Any) -> Record | None:
        record = original(heir, freed, dead, stamp)
        return record and replace(record, queue=freed.queue)

    yield patch.object(rules, "_bequeathed", bequeathed)


@mutant(200, store="amending", seen_at=197)
def _an_heir_beside_whoever_still_holds() -> Iterator[Patches]:
    original = rules._free

    def free(command: Free, record: Record, dead: Any, stamp: Any) -> Decision:
        decision = original(command, record, dead, stamp)
        left = decision.record
        if left is not None and left.holders and command.heir:
            alone = rules._bequeathed(command.heir, replace(left, holders=()), dead, stamp)
            if alone is not None:
                both = replace(alone, holders=(*left.holders, *alone.holders))
                return Decision(FREED, both, (command.heir,))
        return decision

    yield patch.dict(rules._RULES, {Free: free})


@mutant(200, store="scripted")
def _a_notice_from_which_the_lease_begins() -> Iterator[Patches]:
    yield _from_the_notice_on()


@mutant(50, store="amending", seen_at=2)
def _a_notice_from_which_the_lease_begins_on_one_machine() -> Iterator[Patches]:
    yield _from_the_notice_on()


def _from_the_notice_on() -> Patches:
    original = acquiring._inherit

    def inherit(attempt: Any, inherited: Any, care: Any, now: int) -> Hold | None:
        hold = original(attempt, inherited, care, now)
        if hold is not None:
            hold.deadline = deadline(now, hold.ttl)
        return hold

    return patch.object(acquiring, "_inherit", inherit)
