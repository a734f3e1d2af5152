"""How a command is carried to the end: what is looked at, what is written, what is in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import Claim
from holdfast.core.contract import Conflict, Entry, Swapped, exactly
from holdfast.core.effects import Draw, Effect, Load, Now, Sleep, Swap, Wait, Wall
from holdfast.core.holds import Attempt
from holdfast.core.records import SECOND, Holder, Record
from holdfast.core.steps import apply_steps
from holdfast.core.validity import READING_GOOD_FOR
from holdfast.core.witness import View, Witness
from holdfast.errors import CorruptRecord, OutcomeUnknown, Unavailable
from holdfast.testing.sim.kinds import KINDS
from tests.play import play

TTL = 10 * SECOND
CLOCK = exactly(1000 * SECOND)
FREE = Entry(Record(fence=1, updated_at=1), 1, CLOCK)
OTHER = Holder("other", 1, "you", "exclusive", TTL, 0, CLOCK.latest + TTL, "b")
TAKEN = Entry(Record(fence=1, holders=(OTHER,), updated_at=1), 2, CLOCK)
BROKEN = Entry(version=3, now=CLOCK, fault="it is broken")
DONE = Swapped(9, CLOCK)


class Store:
    """Gives its answers one after the other, and keeps what was asked for."""

    def __init__(self, *answers: Any, now: int = 0, wall: int = 0) -> None:
        self.answers = list(answers)
        self.now = now
        self.wall = wall
        self.asked: list[Any] = []
        self.drawn = 0

    @property
    def kinds(self) -> list[type]:
        """What was asked for, without the particulars."""
        return [type(effect) for effect in self.asked]

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, (Load, Swap)):
            self.asked.append(effect)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return (answer, self.now, self.now) if isinstance(effect, Load) else (answer, self.now)
        if isinstance(effect, (Sleep, Wait)):
            self.now += effect.duration if isinstance(effect, Sleep) else effect.at_most
        if isinstance(effect, Draw):
            self.drawn += 1
            return f"b{self.drawn}"
        return {Now: self.now, Wall: self.wall}.get(type(effect))


def witness(kind: str = "server") -> Witness:
    """One that has seen nothing yet."""
    return Witness(KINDS[kind].facts)


def claim() -> Attempt:
    """An attempt to get the lock for oneself."""
    return Attempt("k", Claim("t", "me", "exclusive", TTL))


def carry_out(knows: Witness, attempt: Attempt, store: Store) -> Any:
    """Carry the attempt's command to the end: the verdict."""
    return play(apply_steps(knows, attempt, attempt.command, store.now), store)[0]


@pytest.mark.parametrize("answers", [[BROKEN], [FREE, Conflict(BROKEN)]])
def test_a_record_that_cannot_be_read_is_left_alone(answers: list[Any]) -> None:
    """It is not taken for an empty one, and written over; whether a look or a swap has shown it."""
    store = Store(*answers)
    with pytest.raises(CorruptRecord, match="it is broken"):
        carry_out(witness(), claim(), store)
    assert store.answers == []


@pytest.mark.parametrize(
    ("age", "clock", "asked"),
    [
        (READING_GOOD_FOR, CLOCK, [Swap]),
        (READING_GOOD_FOR + 1, CLOCK, [Load, Swap]),
        (READING_GOOD_FOR + 1, None, [Swap]),  # there is no clock to be read
    ],
)
def test_a_clock_that_was_read_long_ago_is_read_again(
    age: int, clock: Any, asked: list[type]
) -> None:
    """Else the lease would be written without an expiry, and its death be noticed late."""
    knows = witness("server" if clock else "observed")
    knows.wrote("k", View(clock, 0, 0, Record(1), 1))
    store = Store(*([FREE] if Load in asked else []), DONE, now=age)
    granted = carry_out(knows, claim(), store)
    assert store.kinds == asked
    assert bool(granted.holder.expires_at) == bool(clock)


@pytest.mark.parametrize(("version", "fence"), [(None, 5000), (1, 70)])
def test_the_first_fence_without_a_clock(version: int | None, fence: int) -> None:
    """A new record may follow one that was dropped: its fence is as late as the wall clock says.
    That of an old record is not ahead of what the store's clock has shown."""
    knows = witness("patchy")
    knows.saw("other", Entry(now=None, reached=70), 0, 0)
    store = Store(Entry(Record(), version), Swapped(1), wall=5000)
    assert carry_out(knows, claim(), store).holder.fence == fence


def test_what_a_look_has_settled_is_no_longer_in_doubt() -> None:
    """A write was not answered, and a look shows that somebody else has the lock: when the store
    fails afterwards, it is sure that nothing was done."""
    store = Store(FREE, OutcomeUnknown("lost"), TAKEN, *[Unavailable("away")] * 100)
    with pytest.raises(Unavailable, match="away"):
        play(acquire_steps(witness(), claim(), Terms(20 * SECOND, fair=False), 0), store)
    assert store.kinds[:3] == [Load, Swap, Load]
    assert len(store.kinds) > 4
