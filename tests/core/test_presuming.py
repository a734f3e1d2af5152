"""A key that this client has never seen: when a claim presumes that there is no record."""

from __future__ import annotations

import pytest

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import Claim, Free, NotHeld
from holdfast.core.contract import Conflict, Entry
from holdfast.core.effects import Load, Swap
from holdfast.core.holds import NO_BEAT, Attempt, Hold
from holdfast.core.observations import MOST_LAG, Observations
from holdfast.core.records import SECOND
from holdfast.core.steps import apply_steps
from holdfast.core.validity import RATE, Reading
from holdfast.errors import Busy
from tests.core.test_steps import CLOCK, DONE, FREE, TAKEN, TTL, Store, observations
from tests.play import play

NOTHING = Entry(now=CLOCK)


def acquire(seen: Observations, key: str, store: Store) -> Hold:
    """Claim a key, and do not wait for it."""
    attempt = Attempt(key, Claim("t", "me", "exclusive", TTL))
    return play(acquire_steps(seen, attempt, Terms(timeout=0), store.now), store)


@pytest.fixture
def seen() -> Observations:
    """What a client has seen that found no record of its first key."""
    seen = observations()
    first = Store(NOTHING, DONE)
    acquire(seen, "first", first)
    assert first.kinds == [Load, Swap]
    return seen


def test_the_next_new_key_is_got_in_one_trip(seen: Observations) -> None:
    """The swap says that there must be no record, and so proves it."""
    store = Store(DONE)
    acquire(seen, "second", store)
    assert store.kinds == [Swap]
    assert store.asked[0].version is None


def test_a_record_that_is_there_is_no_sign_of_others(seen: Observations) -> None:
    """It costs one swap more. The key after that one is looked at first."""
    store = Store(Conflict(FREE), DONE)
    acquire(seen, "second", store)
    assert store.kinds == [Swap, Swap]
    assert store.asked[1].version == FREE.version
    assert "second" not in seen.contended
    third = Store(NOTHING, DONE)
    acquire(seen, "third", third)
    assert third.kinds == [Load, Swap]


def test_a_lock_that_somebody_holds_is_seen_to_be_taken(seen: Observations) -> None:
    """Nothing is granted on a presumption."""
    with pytest.raises(Busy):
        acquire(seen, "second", Store(Conflict(TAKEN)))


def test_an_old_reading_of_the_clock_is_no_ground_for_it(seen: Observations) -> None:
    """The fence of a new record counts from that reading, and must be recent."""
    store = Store(NOTHING, DONE, now=MOST_LAG * RATE)
    acquire(seen, "second", store)
    assert store.kinds == [Load, Swap]


def test_a_reading_that_took_long_is_no_ground_for_it(seen: Observations) -> None:
    """The clock was read at some moment while it was under way."""
    seen.reading = Reading(CLOCK, 0, MOST_LAG)
    store = Store(NOTHING, DONE, now=MOST_LAG)
    acquire(seen, "second", store)
    assert store.kinds == [Load, Swap]


def test_a_key_that_others_want_has_a_record(seen: Observations) -> None:
    """Although it was forgotten when it was freed."""
    seen.contend("second")
    store = Store(NOTHING, DONE)
    acquire(seen, "second", store)
    assert store.kinds == [Load, Swap]


def test_a_client_without_a_reading_looks() -> None:
    """Also if it has seen a new key, in a store whose replies have no clock."""
    seen = observations()
    seen.keys_are_new = True
    store = Store(NOTHING, DONE)
    acquire(seen, "k", store)
    assert store.kinds == [Load, Swap]


def test_only_a_claim_presumes(seen: Observations) -> None:
    """Whoever frees or renews knows that there was a record, or wants to know."""
    store = Store(NOTHING)
    attempt = Attempt("second", Free("t"), NO_BEAT)
    verdict, _ = play(apply_steps(seen, attempt, attempt.command, SECOND // 100), store)
    assert type(verdict) is NotHeld
    assert store.kinds == [Load]
