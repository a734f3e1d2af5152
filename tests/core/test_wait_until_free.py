"""Waiting until a lock is free: when it looks, for how long it sleeps, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.contract import Entry, Facts, exactly
from holdfast.core.effects import Effect, Emit, Load, Now, Sleep, Wait
from holdfast.core.events import StoreTrouble, Waiting
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Holder, Record
from holdfast.core.wait_until_free import LOOK_AGAIN_AT_LAST, wait_until_free_steps
from holdfast.core.waiting import BoundedWait
from holdfast.errors import AcquireTimeout, Busy, Unavailable
from tests.play import play

TTL = 30 * SECOND
FACTS = Facts(name="x", linearizable=True, clock="store", reach="host", wakeup="push", durable=True)


class Watched:
    """A lock on a store with one clock for all, and what a watcher asks of it."""

    def __init__(
        self, *, free_at: int = 10**18, dies_at: int = 10**18, down_until: int = 0
    ) -> None:
        self.t = 0
        self.free_at = free_at
        self.dies_at = dies_at  # from here on nobody renews
        self.down_until = down_until
        self.looks: list[int] = []
        self.waits: list[int] = []
        self.told: list[Any] = []

    def run(self, timeout: int | None = None, store_patience: int | None = 60 * SECOND) -> Any:
        wait = BoundedWait("k", "me", timeout, store_patience, self.t)
        return play(wait_until_free_steps(Observations(FACTS), wait), self.answer)

    def answer(self, effect: Effect) -> Any:
        if isinstance(effect, Load):
            return self._load()
        if isinstance(effect, Wait):
            self.waits.append(effect.at_most)
            self.t += effect.at_most
        elif isinstance(effect, Sleep):
            self.t += effect.duration
        elif isinstance(effect, Emit):
            self.told.append(effect.event)
        return self.t if isinstance(effect, Now) else None

    def _load(self) -> tuple[Entry, int, int]:
        self.looks.append(self.t)
        if self.t < self.down_until:
            raise Unavailable("away")
        expires_at = min(self.t, self.dies_at) + TTL
        holder = Holder("t", 7, "who", "exclusive", TTL, 0, expires_at, str(self.t), note={"n": 1})
        held = (holder,) if self.t < self.free_at else ()
        return Entry(Record(7, held), self.t, exactly(self.t)), self.t, self.t


def test_free_at_once() -> None:
    """One look, no wait, nothing to tell."""
    world = Watched(free_at=0)
    assert world.run().fence == 7
    assert (world.looks, world.waits, world.told) == ([0], [], [])


def test_looks_become_rare() -> None:
    """Every second at first; an hour of work is not looked at every second."""
    world = Watched(free_at=3600 * SECOND)
    world.run()
    assert world.waits[0] == SECOND
    assert max(world.waits) == LOOK_AGAIN_AT_LAST
    assert len(world.looks) < 450
    assert world.t < (3600 + 10) * SECOND


def test_a_dead_holder_is_waited_for_until_its_ttl() -> None:
    """The sleep ends when the holder runs out, and it is told when that would be."""
    world = Watched(dies_at=0)
    world.run()
    assert TTL < world.t < TTL + SECOND
    events = [event for event in world.told if isinstance(event, Waiting)]
    assert [event.news for event in events] == [True] + [False] * (len(events) - 1)
    assert TTL <= (events[0].frees_in or 0) * SECOND < TTL + SECOND
    assert events[0].holders[0].owner == "who"


@pytest.mark.parametrize(("timeout", "kind"), [(0, Busy), (4 * SECOND, AcquireTimeout)])
def test_out_of_time(timeout: int, kind: type[Busy]) -> None:
    """It ends when the time is over, and says who is at it."""
    world = Watched()
    with pytest.raises(kind, match="held by who") as busy:
        world.run(timeout)
    assert type(busy.value) is kind
    assert busy.value.holders[0].note == {"n": 1}
    assert world.t == timeout


def test_trouble_is_ridden_out() -> None:
    """A store that is away for a while is tried again; its holders may have gone since."""
    world = Watched(free_at=SECOND, down_until=5 * SECOND)
    assert world.run().holders == ()
    assert all(isinstance(event, StoreTrouble) for event in world.told)
    assert 5 < len(world.looks) < 20


def test_trouble_that_lasts() -> None:
    """It gives up after its patience, or when the time is over, with the store's error."""
    for timeout, patience, ends in ((None, 3 * SECOND, 3), (2 * SECOND, 60 * SECOND, 2)):
        world = Watched(down_until=10**18)
        with pytest.raises(Unavailable, match="away"):
            world.run(timeout, patience)
        assert world.t <= ends * SECOND


def test_no_outage_is_too_long_for_boundless_patience() -> None:
    """With `store_patience=None` an hour without the store is waited through; a timeout is kept."""
    world = Watched(free_at=0, down_until=3600 * SECOND)
    with pytest.raises(Unavailable):
        world.run()
    assert world.run(store_patience=None).fence == 7
    assert world.t >= 3600 * SECOND
    world = Watched(free_at=0, down_until=3600 * SECOND)
    with pytest.raises(Unavailable):
        world.run(timeout=5 * SECOND, store_patience=None)
    assert world.t < 6 * SECOND
