"""Contended keys on a store that amends: what is asked of it, and what is in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.acquiring import PLACE_OUTLIVES, Terms, acquire_steps, place_ttl_for
from holdfast.core.commands import Blocked, Claim, Free, Granted, Stamp
from holdfast.core.contract import Amended, Conflict, Entry, Facts, Interval, exactly
from holdfast.core.effects import Amend, Draw, Effect, Load, Now, Swap, Wait
from holdfast.core.holds import Attempt
from holdfast.core.observations import Observations
from holdfast.core.records import LARGEST_FENCE, SECOND, Record, Waiter
from holdfast.core.releasing import release_steps
from holdfast.core.steps import CONFLICTS_AT_FULL_SPEED, CUT_OFF_WITHIN, Amendment, apply_steps
from holdfast.core.validity import READING_GOOD_FOR
from holdfast.errors import AcquireTimeout, CorruptRecord, OutcomeUnknown, Unavailable
from holdfast.testing.sim.kinds import KINDS
from tests.core.test_steps import BROKEN, CLOCK, DONE, FREE, HELD, OTHER, TAKEN, TTL, claim
from tests.play import play


class Amending:
    """A store with one record. Its answers to amends can be lost, before or after they are done."""

    def __init__(self, entry: Entry, *faults: str) -> None:
        self.entry = entry
        self.faults = list(faults)
        self.asked: list[type] = []
        self.now = 0
        self.drawn = 0
        self.took = 0
        self.others = 0  # so many writes of others are just before ours

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, (Load, Swap, Amend, Wait)):
            self.asked.append(type(effect))
        if isinstance(effect, Load):
            return self.entry, self.now, self.now
        if isinstance(effect, Swap):
            if self.others:
                self.others -= 1
                self.entry = replace(self.entry, version=(self.entry.version or 0) + 1)
            if effect.version != self.entry.version:
                return Conflict(self.entry), self.now
            self.entry = Entry(effect.record or Record(), 9, CLOCK)
            return DONE, self.now
        if isinstance(effect, Amend):
            return self._amend(effect), self.now
        if isinstance(effect, Wait):
            self.now += effect.at_most
        if isinstance(effect, Draw):
            self.drawn += 1
            return f"{self.drawn:0{2 * effect.size}x}"
        return self.now if isinstance(effect, Now) else None

    def _amend(self, amend: Amend) -> Amended:
        self.now += self.took
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "away":
            raise Unavailable("away")
        if fault == "lose request":
            raise OutcomeUnknown("lost")
        decision = amend.change(self.entry)
        if decision.record is not None:
            self.entry = Entry(decision.record, self.entry.version + 1, self.entry.now)
        if fault == "lose reply":
            raise OutcomeUnknown("lost")
        return Amended(decision, self.entry)


NETWORK = KINDS["amending"].facts
HOST = replace(NETWORK, reach="host")


def contended(facts: Facts = NETWORK) -> Observations:
    """A client that knows that others want the key, and has read the clock."""
    knows = Observations(facts)
    knows.saw("k", FREE, 0, 0)
    knows.contend("k")
    return knows


def carry_out(knows: Observations, attempt: Attempt, store: Amending) -> Any:
    """Carry the attempt's command to the end: the verdict."""
    return play(apply_steps(knows, attempt, attempt.command, store.now), store)[0]


def test_a_key_that_nobody_else_wants_is_swapped() -> None:
    """One trip from memory is the best there is for it."""
    store, knows = Amending(FREE), Observations(KINDS["amending"].facts)
    carry_out(knows, claim(), store)
    carry_out(knows, Attempt("k", Free("t")), store)
    assert store.asked == [Load, Swap, Swap]


def test_a_conflict_is_the_last_one() -> None:
    """After a write of another client got in the way, none can any more."""
    store, knows = Amending(HELD), Observations(HOST)
    carry_out(knows, Attempt("k", Free("nobody")), store)
    knows.expect("k", HELD, 0)
    store.entry = replace(HELD, version=5)
    carry_out(knows, Attempt("k", Free("t")), store)
    assert store.asked == [Load, Swap, Amend]
    assert store.entry.record.holders == ()


def test_across_a_network_the_second_conflict_is_the_last_one() -> None:
    """The first one has shown what is there, so it is written once more without a look."""
    store, knows = Amending(HELD), Observations(NETWORK)
    carry_out(knows, Attempt("k", Free("nobody")), store)
    knows.expect("k", HELD, 0)
    store.entry = replace(HELD, version=5)
    store.others = 2
    carry_out(knows, Attempt("k", Free("t")), store)
    assert store.asked == [Load, Swap, Swap, Amend]
    assert store.entry.record.holders == ()


@pytest.mark.parametrize("facts", [NETWORK, HOST])
def test_a_claim_that_is_refused_takes_a_place_at_once(facts: Facts) -> None:
    """It makes nobody's write fail, so there is no reason to wait with it."""
    store, knows = Amending(TAKEN), Observations(facts)
    with pytest.raises(AcquireTimeout):
        play(acquire_steps(knows, claim(), Terms(SECOND), 0), store)
    assert store.asked[:3] == [Load, Swap if facts == NETWORK else Amend, Wait]
    assert [waiter.token for waiter in store.entry.record.queue] == ["t"]


def test_a_claim_on_a_contended_key_is_one_trip() -> None:
    """On one machine the refusal and the place are one request, and no look comes before it."""
    store = Amending(TAKEN)
    with pytest.raises(AcquireTimeout):
        play(acquire_steps(contended(HOST), claim(), Terms(SECOND), 0), store)
    assert store.asked[:2] == [Amend, Wait]


def test_a_crowd_does_not_stand_in_line_for_the_record() -> None:
    """Across a network a place is swapped, however often others are faster: whoever holds a record
    still, for two trips, keeps the one waiting who frees the lock."""
    store, conflicts = Amending(TAKEN), 3 * CONFLICTS_AT_FULL_SPEED

    def answer(effect: Effect) -> Any:
        nonlocal conflicts
        if isinstance(effect, Swap) and conflicts:
            conflicts -= 1
            store.entry = replace(store.entry, version=(store.entry.version or 0) + 1)
        return store(effect)

    command = replace(claim().command, queue=True, patience=SECOND)
    steps = apply_steps(contended(), Attempt("k", command), command, 0)
    assert type(play(steps, answer)[0]) is Blocked
    assert Amend not in store.asked


def test_who_may_have_the_lock_does() -> None:
    """A free lock must not wait for its next holder to be lucky."""
    store, knows = Amending(replace(FREE, version=5)), contended()
    store.others = 2
    knows.expect("k", FREE, 0)
    command = replace(claim().command, queue=True, patience=SECOND)
    steps = apply_steps(knows, Attempt("k", command), command, 0)
    assert type(play(steps, store)[0]) is Granted
    assert store.asked == [Swap, Swap, Amend]


def test_a_place_lasts_by_how_many_were_in_the_queue() -> None:
    """Whoever has just freed the lock knows that, and need not renew its place soon."""
    ends = CLOCK.latest + TTL
    queue = tuple(Waiter(f"w{n}", "w", "exclusive", TTL, 0, ends, "b") for n in range(8))
    store, knows = Amending(replace(TAKEN, record=replace(TAKEN.record, queue=queue))), contended()
    knows.expect("k", store.entry, 0)
    lasts = place_ttl_for(TTL, 8, True)
    with pytest.raises(AcquireTimeout):
        play(acquire_steps(knows, claim(), Terms(lasts - PLACE_OUTLIVES), 0), store)
    assert store.asked[:2] == [Swap, Wait]
    assert store.entry.record.queue[-1].ttl == lasts


def test_a_place_that_lasts_until_the_end_of_its_call_is_not_renewed() -> None:
    """And it lasts hardly longer: whoever gives up may be unable to free it."""
    store, knows = Amending(TAKEN), contended()
    knows.expect("k", store.entry, 0)
    with pytest.raises(AcquireTimeout):
        play(acquire_steps(knows, claim(), Terms(SECOND // 2), 0), store)
    assert store.asked[:2] == [Swap, Wait]
    assert store.now >= SECOND // 2
    assert store.entry.record.queue[-1].ttl == SECOND // 2 + PLACE_OUTLIVES


@pytest.mark.parametrize("terms", [Terms(SECOND, fair=False), Terms(0)])
def test_who_is_not_to_queue_does_not(terms: Terms) -> None:
    """`fair=False` and `try_acquire` leave nothing in the record."""
    store, attempt = Amending(TAKEN), claim()
    with pytest.raises(Exception, match="held by you"):
        play(acquire_steps(contended(), attempt, terms, 0), store)
    assert store.entry == TAKEN
    assert attempt.leftovers() == ()


def test_the_last_to_free_a_key_ends_its_contention() -> None:
    """When nobody is left in the queue, the next claim is a swap again."""
    store, knows = Amending(replace(HELD, version=4)), contended()
    assert play(release_steps(knows, Attempt("k", Free("t")), 0, SECOND), store)
    assert store.asked == [Amend]
    assert "k" not in knows.contended


@pytest.mark.parametrize("lost", ["lose request", "lose reply"])
def test_what_has_no_answer_is_sent_again(lost: str) -> None:
    """It finds its own token, and the deadline is that of the write that landed."""
    store, attempt = Amending(FREE, lost), claim()
    store.took = 1000
    hold = play(acquire_steps(contended(), attempt, Terms(0), 0), store)
    assert store.asked == [Amend, Amend]
    assert hold.acquired == (0 if lost == "lose reply" else 1000)
    assert len(store.entry.record.holders) == 1


def test_a_store_that_was_silent_for_long_is_not_asked_again() -> None:
    """The caller decides how long to go on."""
    store = Amending(FREE, "lose reply")
    store.took = CUT_OFF_WITHIN + 1
    with pytest.raises(OutcomeUnknown):
        carry_out(contended(), claim(), store)
    assert store.asked == [Amend]


def test_what_nobody_could_look_at_stays_in_doubt() -> None:
    """An amend was not answered, and the next one was surely not done: the first may have been."""
    store, attempt = Amending(FREE, "lose request", "away"), claim()
    with pytest.raises(OutcomeUnknown):
        carry_out(contended(), attempt, store)
    assert attempt.leftovers() == ("t",)


def test_what_was_surely_not_done_has_left_nothing() -> None:
    """Without a doubt there is none in the error either."""
    store, attempt = Amending(FREE, "away"), claim()
    with pytest.raises(Unavailable):
        carry_out(contended(), attempt, store)
    assert attempt.leftovers() == ()


def test_who_was_refused_after_a_lost_answer_may_have_left_something() -> None:
    """The first request may still arrive."""
    store, attempt = Amending(TAKEN, "lose request"), claim()
    assert isinstance(carry_out(contended(), attempt, store), Blocked)
    assert attempt.leftovers() == ("t",)


# --- the function that the store is given -------------------------------------------------------


def amendment(command: Any, knows: Observations | None = None, sent: int = 0) -> Amendment:
    """A command as the store is given it."""
    return Amendment("k", command, "b1", sent, knows or contended())


@pytest.mark.parametrize("entry", [FREE, TAKEN, HELD])
def test_it_is_the_law(entry: Entry) -> None:
    """It decides what the rules decide, by the clock of the entry."""
    command = Claim("t", "me", "exclusive", TTL, queue=True, patience=SECOND)
    stamp = Stamp(CLOCK.latest, "b1", True, CLOCK.earliest)
    expected = rules.decide(command, entry.record, rules.nobody, stamp)
    assert amendment(command)(entry) == expected


def test_the_dead_are_judged_by_the_clock_of_the_entry() -> None:
    """A holder counts as dead when it has surely run out."""
    command = Claim("t", "me", "exclusive", TTL)
    for at, verdict in ((OTHER.expires_at, Blocked), (OTHER.expires_at + 1, Granted)):
        decided = amendment(command)(replace(TAKEN, now=Interval(at, at + 500)))
        assert isinstance(decided.verdict, verdict)


def test_without_a_clock_in_the_entry_the_last_reading_is_carried_on() -> None:
    """And without one that is recent enough nothing is written."""
    command = Claim("t", "me", "exclusive", TTL)
    entry = replace(FREE, now=None)
    decided = amendment(command, sent=SECOND)(entry)
    assert decided.record is not None
    assert decided.record.holders[0].expires_at >= CLOCK.latest + SECOND + TTL
    with pytest.raises(Unavailable):
        amendment(command, sent=READING_GOOD_FOR + 1)(entry)


def test_a_key_is_not_amended_without_a_reading_of_the_clock() -> None:
    """A load comes first, which reads it."""
    store = Amending(FREE)
    store.now = READING_GOOD_FOR + 1
    carry_out(contended(), claim(), store)
    assert store.asked == [Load, Swap]


@pytest.mark.parametrize("entry", [BROKEN, Entry(Record(LARGEST_FENCE), 1, exactly(1))])
def test_a_record_that_cannot_be_used_is_left_alone(entry: Entry) -> None:
    """The function raises, so that the store writes nothing."""
    with pytest.raises(CorruptRecord):
        amendment(Claim("t", "me", "exclusive", TTL))(entry)


def test_it_shows_no_token() -> None:
    """Not in a traceback either."""
    assert "secret" not in repr(amendment(Claim("secret", "me", "exclusive", TTL)))
