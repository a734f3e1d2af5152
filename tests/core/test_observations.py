"""What a client remembers of its store: its clock, its records, and who was silent."""

from __future__ import annotations

import sys
import threading

import pytest

from holdfast.core.contract import Entry, Facts, Interval, exactly
from holdfast.core.observations import AFTER_EXPIRY, REMEMBERED_KEYS, Observations, View
from holdfast.core.records import EMPTY, SECOND, Holder, Record, Waiter

TTL = 10 * SECOND
FACTS = Facts(
    name="x", linearizable=True, clock="observed", reach="network", wakeup="poll", durable=True
)


def holder(token: str = "t", beat: str = "b", expires_at: int = 0) -> Holder:
    """A holder, without a clock unless told."""
    return Holder(token, 1, "o", "exclusive", TTL, 0, expires_at, beat)


def entry(*holders: Holder, now: Interval | None = None) -> Entry:
    """A record with these holders."""
    return Entry(Record(1, holders), 1, now)


@pytest.fixture
def observations() -> Observations:
    """One that has seen nothing."""
    return Observations(FACTS)


def test_observed_expiry(observations: Observations) -> None:
    """A silent holder is dead after its whole ttl, counted from the reply that showed it."""
    observations.saw("k", entry(holder()), sent=0, got=5)
    for m, dead in ((5, False), (5 + TTL, False), (6 + TTL, True)):
        assert observations.dead("k", None, m)(holder()) is dead
    assert observations.dead_from("k", holder(), None, got=5) == 5 + TTL + AFTER_EXPIRY


def test_seeing_it_again_does_not_start_again(observations: Observations) -> None:
    """Silence counts from the first reply, not from the last."""
    for got in (5, 100, TTL):
        observations.saw("k", entry(holder()), sent=0, got=got)
    assert observations.dead("k", None, 6 + TTL)(holder())


def test_a_new_beat_starts_again(observations: Observations) -> None:
    """A sign of life ends the silence."""
    observations.saw("k", entry(holder(beat="1")), sent=0, got=5)
    observations.saw("k", entry(holder(beat="2")), sent=0, got=TTL)
    assert not observations.dead("k", None, 6 + TTL)(holder(beat="2"))
    assert observations.dead("k", None, TTL + TTL + 1)(holder(beat="2"))


def test_never_seen_is_alive(observations: Observations) -> None:
    """Somebody whom this client never saw is not dead, whenever it is asked."""
    assert not observations.dead("k", None, 10**18)(holder())
    observations.saw("k", entry(holder("a")), sent=0, got=5)
    assert not observations.dead("k", None, 10**18)(holder("b"))
    assert not observations.dead("other", None, 10**18)(holder("a"))


def test_waiters_are_watched_too(observations: Observations) -> None:
    """A silent waiter drops out like a holder."""
    waiter = Waiter("w", "o", "shared", SECOND, 0, 0, "b")
    observations.saw("k", Entry(Record(1, (), (waiter,)), 1), sent=0, got=0)
    assert not observations.dead("k", None, SECOND)(waiter)
    assert observations.dead("k", None, SECOND + 1)(waiter)


def test_the_clock_decides_where_there_is_one(observations: Observations) -> None:
    """Dead is who has surely run out: the earliest that the clock can show is past it."""
    party = holder(expires_at=1000)
    for earliest, dead in ((999, False), (1000, False), (1001, True)):
        assert observations.dead("k", Interval(earliest, earliest + 500), 0)(party) is dead
    assert (
        observations.dead_from("k", party, Interval(900, 990), got=7) == 7 + 100 + 1 + AFTER_EXPIRY
    )
    assert observations.dead_from("k", party, exactly(5000), got=7) == 7 + AFTER_EXPIRY


def test_unclocked_party_on_a_clocked_store(observations: Observations) -> None:
    """Who was written without a reading of the clock is watched, though there is a clock."""
    party = holder(expires_at=0)
    observations.saw("k", entry(party, now=exactly(10**15)), sent=0, got=5)
    assert not observations.dead("k", exactly(10**15), 5 + TTL)(party)
    assert observations.dead("k", exactly(10**15), 6 + TTL)(party)
    assert observations.dead_from("k", party, exactly(10**15), got=9) == 5 + TTL + AFTER_EXPIRY


def test_clock_is_carried_from_before_the_request(observations: Observations) -> None:
    """A reading counts from when it was asked for, so that it is never too early."""
    assert observations.reading.at(0) is None
    observations.saw("k", Entry(now=exactly(1000)), sent=50, got=90)
    assert observations.reading.at(50) == Interval(1000, 1001)  # rounded up
    assert observations.reading.at(90) == Interval(1000, 1041)


def test_what_the_clock_has_reached_only_grows(observations: Observations) -> None:
    """Whether a reply told the time or only a time that is past; a late one takes nothing back."""
    shown = [(None, None), (None, 70), (None, 60), (exactly(90), 5), (Interval(80, 99), None)]
    reached = []
    for now, past in shown:
        observations.saw("k", Entry(now=now, reached=past), 0, 0)
        reached.append(observations.reached)
    assert reached == [None, 70, 70, 90, 90]


def test_views_are_remembered_until_forgotten(observations: Observations) -> None:
    """What was written last is known, until it proves wrong."""
    view = View(exactly(1), 0, 1, EMPTY, 7)
    observations.wrote("k", view)
    assert observations.recall("k") is view
    observations.forget("k")
    assert observations.recall("k") is None


def test_memory_is_bounded(observations: Observations) -> None:
    """However many keys there are, only so many are remembered."""
    for number in range(REMEMBERED_KEYS + 500):
        observations.wrote(str(number), View(None, 0, 0, EMPTY, 1))
        observations.saw(str(number), entry(holder()), 0, 0)
        observations.contend(str(number))
    assert len(observations.contended) == REMEMBERED_KEYS
    assert len(observations._views) == REMEMBERED_KEYS
    assert len(observations._observed) == REMEMBERED_KEYS
    assert observations.recall(str(REMEMBERED_KEYS + 499)) is not None
    assert observations.recall("0") is None


def test_many_threads_share_it(observations: Observations) -> None:
    """Threads that use more keys than it remembers do not trip over each other."""
    trouble: list[Exception] = []
    interval = sys.getswitchinterval()

    def work(name: int) -> None:
        try:
            for number in range(6000):
                observations.wrote(f"{name}/{number}", View(None, 0, 0, EMPTY, 1))
                observations.saw(f"{name}/{number}", entry(holder()), 0, 0)
        except Exception as exc:
            trouble.append(exc)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert trouble == []


def test_a_lock_that_was_waited_for_after_very_many_others(observations: Observations) -> None:
    """Who frees it expects somebody else to have it next, however many it waited for in vain."""
    for number in range(2 * REMEMBERED_KEYS):
        observations.contend(f"in vain {number}")
    observations.contend("k")
    observations.wrote("k", View(None, 0, 0, EMPTY, 1))
    assert observations.recall("k") is None
