"""Who has just had a lock that others wanted too leaves it to them for a moment."""

from __future__ import annotations

import pytest

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.holds import Attempt
from holdfast.core.observations import STEP_BACK, STEPS_BACK, Observations, View
from holdfast.core.records import SECOND, Record
from holdfast.testing.sim.kinds import KINDS
from tests.core.test_steps import CLOCK, DONE, FREE, Store, claim
from tests.play import play

FREED = View(CLOCK, 0, 0, Record(1), 1)


def has_freed(kind: str = "seconds", *, contended: bool = True) -> Observations:
    """A client that has just freed the lock, and knows whether others wanted it."""
    knows = Observations(KINDS[kind].facts)
    if contended:
        knows.contend("k")
    knows.wrote("k", FREED)
    return knows


def paused(knows: Observations, terms: Terms, attempt: Attempt | None = None) -> list[int]:
    """How long a claim pauses before it is granted."""
    store = Store(FREE, DONE, now=1)
    play(acquire_steps(knows, attempt or claim(), terms, 1), store)
    return store.slept


def test_it_steps_back_a_few_times() -> None:
    """Others find the lock free meanwhile; if nobody does, it is not asked of it for long: those
    who have waited longest look most rarely, and then take a place in the queue."""
    knows = has_freed()
    for _ in range(STEPS_BACK):
        assert paused(knows, Terms()) == [STEP_BACK - 1]
        knows.wrote("k", FREED)
    knows.forget("k")
    assert paused(knows, Terms()) == []


def test_a_new_sign_of_others_counts_anew() -> None:
    """Whoever steps back and finds that somebody was there goes on doing so."""
    knows = has_freed()
    for _ in range(2 * STEPS_BACK):
        knows.contend("k")
        knows.wrote("k", FREED)
        assert paused(knows, Terms()) == [STEP_BACK - 1]


@pytest.mark.parametrize("kind", ["server", "scripted", "amending"])
def test_where_waiters_are_told_nobody_steps_back(kind: str) -> None:
    """They need no time to look, or there is a queue that nobody passes."""
    assert has_freed(kind).steps_back_until("k") == 0


def test_a_lock_that_nobody_else_wanted_is_claimed_at_once() -> None:
    """An uncontended lock costs nothing more."""
    assert has_freed(contended=False).steps_back_until("k") == 0


def test_who_does_not_wait_does_not_step_back() -> None:
    """`try_acquire` says at once what there is, and a timeout is kept."""
    assert paused(has_freed(), Terms(timeout=0)) == []
    assert paused(has_freed(), Terms(timeout=STEP_BACK // 2)) == [STEP_BACK // 4]


def test_what_was_long_ago_is_over() -> None:
    """By then the others have had their chance."""
    knows, store = has_freed(), Store(FREE, DONE, now=SECOND)
    play(acquire_steps(knows, claim(), Terms(), SECOND), store)
    assert store.slept == []
