"""Beats, many in one trip or one, when the store or a single record is in trouble."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.core.commands import Granted, NotHeld
from holdfast.core.contract import Applied, Conflict, Entry, Swapped, exactly
from holdfast.core.effects import Apply, Draw, Effect, Load, Now, Swap, SwapMany
from holdfast.core.holds import Care, Hold, hold_of
from holdfast.core.observations import Observations, View
from holdfast.core.records import SECOND, Holder, Record
from holdfast.core.renewing import STORE_IS_IN_TROUBLE, renew_many_steps, renew_steps
from holdfast.errors import LeaseLost, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.testing.sim.kinds import KINDS
from tests.play import play

TTL = 30 * SECOND
CLOCK = exactly(1000 * SECOND)


class Store:
    """Records that were all written once, and what goes wrong with them."""

    def __init__(self, size: int) -> None:
        self.observations = Observations(KINDS["server"].facts)
        self.rows = {f"k{n}": (Record(1, (_holder(n),)), n + 1) for n in range(size)}
        for key, (record, version) in self.rows.items():
            self.observations.wrote(key, View(CLOCK, 0, 0, record, version))
        self.holds = [
            hold_of(key, Granted(record.holders[0]), 0, Care())
            for key, (record, _) in self.rows.items()
        ]
        self.batch_trouble: Exception | None = None
        self.troubles: dict[str, Exception] = {}
        self.asked: list[Effect] = []
        self._random = Random(1)

    def renew(self) -> list[Any]:
        """All of them, in one batch; what was asked of the store is in `asked`."""
        self.asked.clear()
        return list(play(renew_many_steps(self.observations, self.holds), self._answer))

    def _answer(self, effect: Effect) -> Any:
        if isinstance(effect, Now):
            return SECOND
        if isinstance(effect, Draw):
            return self._random.randbytes(effect.size).hex()
        self.asked.append(effect)
        if isinstance(effect, SwapMany):
            return [self.batch_trouble or self._swap(swap) for swap in effect.swaps], SECOND
        assert isinstance(effect, (Load, Swap))
        if effect.key in self.troubles:
            raise self.troubles[effect.key]
        if isinstance(effect, Load):
            return self._entry(effect.key), SECOND, SECOND
        return self._swap(effect), SECOND

    def _swap(self, swap: Swap) -> Swapped | Conflict:
        _, version = self.rows[swap.key]
        if swap.version != version:
            return Conflict(self._entry(swap.key))
        assert swap.record is not None
        self.rows[swap.key] = swap.record, version + 100
        return Swapped(version + 100, CLOCK)

    def _entry(self, key: str) -> Entry:
        record, version = self.rows[key]
        return Entry(record, version, CLOCK)


def _holder(number: int) -> Holder:
    expires_at = CLOCK.latest + TTL
    return Holder(f"t{number}", 1, "me", "exclusive", TTL, CLOCK.latest, expires_at, "first")


def renewed(store: Store, hold: Hold) -> bool:
    """Whether a renewal is in the store and known here."""
    return store.rows[hold.key][0].holders[0].beat == hold.holder.beat != "first"


def test_all_in_one_trip() -> None:
    """The usual case."""
    store = Store(5)
    assert store.renew() == [None] * 5
    assert [type(effect) for effect in store.asked] == [SwapMany]
    assert all(renewed(store, hold) for hold in store.holds)


def test_one_that_was_changed_goes_straight_to_its_swap() -> None:
    """The conflict has shown what is there."""
    store = Store(3)
    record, _ = store.rows["k1"]
    store.rows["k1"] = Record(1, record.holders, updated_at=7), 50
    assert store.renew() == [None] * 3
    assert [type(effect) for effect in store.asked] == [SwapMany, Swap]
    assert all(renewed(store, hold) for hold in store.holds)


def test_a_batch_that_fails_is_not_taken_apart_at_once() -> None:
    """A hundred time-outs in a row would cost the leases more than a new try."""
    store = Store(5)
    store.batch_trouble = OutcomeUnknown("no answer")
    assert store.renew() == [store.batch_trouble] * 5
    assert [type(effect) for effect in store.asked] == [SwapMany]


def test_one_that_fails_by_itself_is_looked_at_at_once() -> None:
    """There is no batch to take apart: its answer may have been lost, and only that."""
    store = Store(1)
    store.batch_trouble = OutcomeUnknown("no answer")
    assert store.renew() == [None]
    assert [type(effect) for effect in store.asked] == [SwapMany, Load, Swap]
    assert renewed(store, store.holds[0])


def test_after_a_failed_batch_all_go_alone() -> None:
    """One of them may be to blame for it: then it alone is not renewed."""
    store = Store(5)
    store.batch_trouble = Unavailable("not this batch")
    store.renew()
    store.troubles = {"k2": Misconfigured("this one cannot be written")}
    results = store.renew()
    assert results == [None, None, store.troubles["k2"], None, None]
    assert SwapMany not in {type(effect) for effect in store.asked}
    store.batch_trouble = None
    store.troubles.clear()
    store.renew()
    assert store.renew() == [None] * 5
    assert [type(effect) for effect in store.asked] == [SwapMany]


def test_a_store_in_trouble_is_left_alone_soon() -> None:
    """Those who have not been tried by then get their next chance with the keeper's next try."""
    store = Store(9)
    store.batch_trouble = OutcomeUnknown("no answer")
    store.renew()
    store.troubles = {f"k{n}": Unavailable(f"no answer to {n}") for n in range(9)}
    results = store.renew()
    assert len(store.asked) == STORE_IS_IN_TROUBLE
    assert results == [store.troubles["k0"], *[store.troubles["k1"]] * 8]


def test_failures_that_are_not_in_a_row() -> None:
    """Single records in trouble do not keep the others from being renewed."""
    store = Store(7)
    store.batch_trouble = OutcomeUnknown("no answer")
    store.renew()
    store.troubles = {f"k{n}": Unavailable("locked") for n in (0, 2, 4)}
    results = store.renew()
    assert [result is None for result in results] == [n not in (0, 2, 4) for n in range(7)]


@pytest.mark.parametrize("by", [5 * SECOND, 100 * SECOND])
def test_why_it_is_lost_is_not_asked_for_longer_than_the_caller_waits(by: int) -> None:
    """A store that runs the rules is asked once more for that, by when the renewal is due."""
    (hold,) = Store(1).holds
    due: list[int] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Now):
            return SECOND
        if isinstance(effect, Draw):
            return "beat"
        assert isinstance(effect, (Apply, Load))
        due.append(effect.by)
        if isinstance(effect, Load):
            raise Unavailable("It took too long.")
        return Applied(NotHeld(), 7, CLOCK), SECOND

    observations = Observations(KINDS["scripted"].facts)
    with pytest.raises(LeaseLost, match="its record is gone"):
        play(renew_steps(observations, hold, by), answer)
    assert due == [min(by, hold.deadline)] * 2
