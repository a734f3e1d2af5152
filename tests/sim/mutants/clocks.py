"""Wrong about time: whose clock decides, from when it counts, who is silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from holdfast.core import holds, listing, rules, validity, wait_until_free
from holdfast.core.commands import Decision, Granted, Renew, Stamp
from holdfast.core.contract import Interval
from holdfast.core.effects import WALL, Steps
from holdfast.core.holds import Attempt
from holdfast.core.listing import LockView
from holdfast.core.observations import Observations, View
from holdfast.core.records import Record
from holdfast.core.steps import Answer
from tests.sim.mutants.base import Patches, mutant, wrap_apply


@mutant(60)
def _expiry_by_the_wall_clock_of_a_client() -> Iterator[Patches]:
    walls: dict[int, int] = {}

    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        walls[id(observations)] = yield from WALL
        return (yield from inner)

    def dead(self: Observations, key: str, now: Any, m: int) -> Any:
        return lambda party: walls.get(id(self), 0) > party.expires_at > 0

    yield from wrap_apply(wrapper)
    yield patch.object(Observations, "dead", dead)


@mutant(60)
def _deadline_from_after_the_reply() -> Iterator[Patches]:
    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        verdict, view = yield from inner
        attempt.sent = dict.fromkeys(attempt.sent, view.got)
        return verdict, view

    yield from wrap_apply(wrapper)


@mutant(100)
def _expiry_from_the_clock_of_an_earlier_load() -> Iterator[Patches]:
    def stamp(self: validity.Reading, m: int, beat: str) -> Stamp | None:
        now = self.now
        return None if now is None else Stamp(now.latest, beat, True, now.earliest)

    yield patch.object(validity.Reading, "stamp", stamp)


@mutant(300)
def _deadline_of_the_last_attempt_though_an_earlier_one_landed() -> Iterator[Patches]:
    class Last(dict[str, int]):
        def __getitem__(self, beat: str) -> int:
            return max(self.values())

        def get(self, beat: str, default: Any = None) -> int:
            return self[beat]

    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        attempt.sent = Last(attempt.sent)
        return (yield from inner)

    yield from wrap_apply(wrapper)


@mutant(60)
def _no_margin_for_clock_rates() -> Iterator[Patches]:
    yield patch.object(holds, "deadline", lambda sent, ttl: sent + ttl)


@mutant(100)
def _a_date_clock_taken_as_exact() -> Iterator[Patches]:
    original = Observations.read_clock

    def read_clock(self: Observations, reading: validity.Reading) -> None:
        now = reading.now and Interval(reading.now.earliest, reading.now.earliest)
        original(self, validity.Reading(now, reading.sent, reading.got))

    yield patch.object(Observations, "read_clock", read_clock)


@mutant(100)
def _dead_by_the_latest_that_the_clock_may_show() -> Iterator[Patches]:
    original = Observations.dead

    def dead(self: Observations, key: str, now: Interval | None, m: int) -> Any:
        return original(self, key, now and Interval(now.latest, now.latest), m)

    yield patch.object(Observations, "dead", dead)


@mutant(200)
def _a_clock_reading_counted_from_after_the_reply() -> Iterator[Patches]:
    original = Observations.saw

    def saw(self: Observations, key: str, entry: Any, sent: int, got: int) -> Any:
        return original(self, key, entry, got, got)

    yield patch.object(Observations, "saw", saw)


@mutant(400)
def _a_clock_carried_on_without_regard_to_its_rate() -> Iterator[Patches]:
    original = validity.Reading.stamp

    def stamp(self: validity.Reading, m: int, beat: str) -> Stamp | None:
        right = original(self, m, beat)
        if right is None or self.now is None:
            return None
        return replace(right, at=self.now.latest + m - self.sent)

    yield patch.object(validity.Reading, "stamp", stamp)


@mutant(200, "observed")
def _silence_counted_from_before_the_look() -> Iterator[Patches]:
    original = Observations.saw

    def saw(self: Observations, key: str, entry: Any, sent: int, got: int) -> Any:
        view = original(self, key, entry, sent, got)
        for party, since in self._observed.get(key, {}).items():
            if since == got:
                self._observed[key][party] = sent
        return view

    yield patch.object(Observations, "saw", saw)


@mutant(200)
def _a_renewal_that_keeps_its_beat() -> Iterator[Patches]:
    original = rules._renew

    def renew(command: Any, record: Record, dead: Any, stamp: Any) -> Decision:
        mine = rules.find(record.holders, command.token)
        if mine is not None and not stamp.clocked:
            stamp = replace(stamp, beat=mine.beat)
        return original(command, record, dead, stamp)

    def wrapper(
        inner: Steps[Answer], observations: Observations, attempt: Attempt, command: Any
    ) -> Steps[Answer]:
        verdict, view = yield from inner
        if isinstance(verdict, Granted):
            last = max(attempt.sent.values(), default=view.got)
            attempt.sent.setdefault(verdict.holder.beat, last)
        return verdict, view

    yield patch.dict(rules._RULES, {Renew: renew})
    yield from wrap_apply(wrapper)


@mutant(200)
def _a_silent_holder_given_half_its_ttl() -> Iterator[Patches]:
    original = Observations.dead

    def dead(self: Observations, key: str, now: Interval | None, m: int) -> Any:
        judge = original(self, key, now, m)
        seen = self._observed.get(key, {})
        return lambda p: judge(p) or m - seen.get((p.token, p.beat), m) > p.ttl // 2

    yield patch.object(Observations, "dead", dead)


@mutant(400)
def _a_watcher_that_does_not_look_again() -> Iterator[Patches]:
    original = listing.show_view

    def show_view(observations: Observations, key: str, view: View) -> LockView:
        seen = original(observations, key, view)
        now = view.now.earliest if view.now is not None else 0
        staying = tuple(h for h in seen.holders if h.expires_at - now > h.ttl // 2)
        return replace(seen, holders=staying)

    yield patch.object(wait_until_free, "show_view", show_view)


@mutant(4000, store="observed", seen_at=3252)
def _silence_judged_when_the_reply_came() -> Iterator[Patches]:
    def dead_when_asked(self: Observations, key: str, view: View) -> Any:
        return self.dead(key, view.now, view.got)

    yield patch.object(Observations, "dead_when_asked", dead_when_asked)


@mutant(2400, store="dated", seen_at=782)
def _a_look_judged_by_a_clock_that_was_read_after_it() -> Iterator[Patches]:
    def dead_when_asked(self: Observations, key: str, view: View) -> Any:
        return self.dead(key, view.now, view.sent)

    yield patch.object(Observations, "dead_when_asked", dead_when_asked)
