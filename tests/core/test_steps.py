"""How a command is carried to the end: what is looked at, what is written, what is in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import ANYONE, FREED, Claim, Free, NotHeld, Offer, Renew, Take
from holdfast.core.contract import Applied, Conflict, Entry, Swapped, exactly
from holdfast.core.effects import Apply, Draw, Effect, Load, Now, Sleep, Swap, Wait, Wall
from holdfast.core.evicting import evict_steps
from holdfast.core.handing_over import enter_steps, offer_steps
from holdfast.core.holds import NO_BEAT, Attempt, Care
from holdfast.core.observations import Observations, View
from holdfast.core.records import RANGE, SECOND, Holder, Record
from holdfast.core.releasing import release_steps
from holdfast.core.steps import CONFLICTS_AT_FULL_SPEED, FIRST_PAUSE, LONGEST_PAUSE, apply_steps
from holdfast.core.validity import RATE, READING_GOOD_FOR
from holdfast.errors import CorruptRecord, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.testing.sim.kinds import KINDS
from tests.play import play

TTL = 10 * SECOND
CLOCK = exactly(1000 * SECOND)
FREE = Entry(Record(fence=1, updated_at=1), 1, CLOCK)
OTHER = Holder("other", 1, "you", "exclusive", TTL, 0, CLOCK.latest + TTL, "b")
TAKEN = Entry(Record(fence=1, holders=(OTHER,), updated_at=1), 2, CLOCK)
MINE = Holder("t", 1, "me", "exclusive", TTL, 0, CLOCK.latest + TTL, "b")
HELD = Entry(Record(fence=1, holders=(MINE,), updated_at=1), 1, CLOCK)
OFFERED = Entry(Record(fence=1, holders=(replace(MINE, token="ticket", offered=True),)), 1, CLOCK)
BROKEN = Entry(version=3, now=CLOCK, fault="it is broken")
DONE = Swapped(9, CLOCK)


class Store:
    """Gives its answers one after the other, and keeps what was asked for."""

    def __init__(self, *answers: Any, now: int = 0, wall: int = 0) -> None:
        self.answers = list(answers)
        self.now = now
        self.wall = wall
        self.asked: list[Any] = []
        self.slept: list[int] = []
        self.drawn = 0

    @property
    def kinds(self) -> list[type]:
        """What was asked for, without the particulars."""
        return [type(effect) for effect in self.asked]

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, (Load, Swap, Apply)):
            self.asked.append(effect)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return (answer, self.now, self.now) if isinstance(effect, Load) else (answer, self.now)
        if isinstance(effect, Sleep):
            self.slept.append(effect.duration)
            self.now += effect.duration
        if isinstance(effect, Wait):
            self.now += effect.at_most
        if isinstance(effect, Draw):
            self.drawn += 1
            return f"{self.drawn:0{2 * effect.size}x}"
        return {Now: self.now, Wall: self.wall}.get(type(effect))


def observations(kind: str = "server") -> Observations:
    """One that has seen nothing yet."""
    return Observations(KINDS[kind].facts)


def claim() -> Attempt:
    """An attempt to get the lock for oneself."""
    return Attempt("k", Claim("t", "me", "exclusive", TTL))


def carry_out(knows: Observations, attempt: Attempt, store: Store) -> Any:
    """Carry the attempt's command to the end: the verdict."""
    return play(apply_steps(knows, attempt, attempt.command, store.now), store)[0]


@pytest.mark.parametrize("answers", [[BROKEN], [FREE, Conflict(BROKEN)]])
def test_a_record_that_cannot_be_read_is_left_alone(answers: list[Any]) -> None:
    """It is not taken for an empty one, and written over; whether a look or a swap has shown it."""
    store = Store(*answers)
    with pytest.raises(CorruptRecord, match="it is broken"):
        carry_out(observations(), claim(), store)
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
    knows = observations("server" if clock else "observed")
    knows.wrote("k", View(clock, 0, 0, Record(1), 1))
    store = Store(*([FREE] if Load in asked else []), DONE, now=age)
    granted = carry_out(knows, claim(), store)
    assert store.kinds == asked
    assert bool(granted.holder.expires_at) == bool(clock)


class SlowClock(Store):
    """Its loads take so long, one after the other; the clock is read when the answer leaves."""

    def __init__(self, *takes: int) -> None:
        super().__init__(*[FREE] * len(takes), DONE)
        self.takes = list(takes)

    def __call__(self, effect: Effect) -> Any:
        if not isinstance(effect, Load):
            return super().__call__(effect)
        sent = self.now
        self.now += self.takes.pop(0)
        entry, _, got = super().__call__(effect)
        return replace(entry, now=exactly(CLOCK.latest + self.now)), sent, got


@pytest.mark.parametrize(
    ("takes", "by", "longer"),
    [
        ([SECOND], 60 * SECOND, SECOND),
        ([4 * SECOND, 1000], 60 * SECOND, 1000),  # after an outage
        ([4 * SECOND, 4 * SECOND], 60 * SECOND, 4 * SECOND),  # it is always so slow
        ([4 * SECOND], 12 * SECOND, 4 * SECOND),  # a second look and the write might be too late
    ],
)
def test_a_clock_that_took_long_to_read_is_read_again(
    takes: list[int], by: int, longer: int
) -> None:
    """Else the next holder waits for all of that time, too, when this one dies."""
    attempt, store = claim(), SlowClock(*takes)
    attempt.by = by
    granted = carry_out(observations(), attempt, store)
    assert store.kinds == [Load] * len(takes) + [Swap]
    there = granted.holder.expires_at - (CLOCK.latest + store.now + TTL)
    assert longer <= there <= longer + longer // RATE + 1


def test_a_slow_reading_is_not_used_without_a_look() -> None:
    """The record is known, but the clock only vaguely."""
    knows, store = observations(), SlowClock(1000)
    knows.wrote("k", View(CLOCK, 0, 2 * SECOND, Record(1), 1))
    store.now = 2 * SECOND
    carry_out(knows, claim(), store)
    assert store.kinds == [Load, Swap]


@pytest.mark.parametrize(("version", "fence"), [(None, 5_000_000), (1, 70_000)])
def test_the_first_fence_without_a_clock(version: int | None, fence: int) -> None:
    """A new record may follow one that was dropped: its fence is as late as the wall clock says.
    That of an old record is not ahead of what the store's clock has shown."""
    knows = observations("patchy")
    knows.saw("other", Entry(now=None, reached=70_000), 0, 0)
    store = Store(Entry(Record(), version), Swapped(1), wall=5_000_000)
    granted = carry_out(knows, claim(), store)
    assert (granted.holder.fence, granted.last) == (fence - RANGE, fence)


def test_what_a_look_has_settled_is_no_longer_in_doubt() -> None:
    """A write was not answered, and a look shows that somebody else has the lock: when the store
    fails afterwards, it is sure that nothing was done."""
    store = Store(FREE, OutcomeUnknown("lost"), TAKEN, *[Unavailable("away")] * 100)
    with pytest.raises(Unavailable, match="away"):
        play(acquire_steps(observations(), claim(), Terms(20 * SECOND, fair=False), 0), store)
    assert store.kinds[:3] == [Load, Swap, Load]
    assert len(store.kinds) > 4


@pytest.mark.parametrize("fair", [True, False])
def test_what_was_answered_is_not_in_doubt(fair: bool) -> None:
    """A store that fails after it has answered every write has surely not granted the lock."""
    answers = [TAKEN, DONE] if fair else [FREE, Conflict(TAKEN)]
    store = Store(*answers, *[Unavailable("away")] * 100)
    with pytest.raises(Unavailable, match="away"):
        play(acquire_steps(observations(), claim(), Terms(20 * SECOND, fair=fair), 0), store)
    assert store.kinds[:3] == [Load, Swap, Load]


def test_what_was_answered_by_a_script_is_not_in_doubt() -> None:
    """The same where the store runs the rules."""
    answers = [Applied(NotHeld(), 1, CLOCK), Unavailable("away")]
    attempt, knows = claim(), observations("scripted")
    store = Store(*answers)
    carry_out(knows, attempt, store)
    assert not attempt.unsettled
    with pytest.raises(Unavailable):
        carry_out(knows, attempt, store)
    assert not attempt.unsettled


def test_what_nobody_could_look_at_stays_in_doubt() -> None:
    """A write was not answered, and then the store was away: it may have granted the lock."""
    store = Store(FREE, OutcomeUnknown("lost"), *[Unavailable("away")] * 100)
    attempt = claim()
    with pytest.raises(OutcomeUnknown, match="away"):
        play(acquire_steps(observations(), attempt, Terms(20 * SECOND), 0), store)
    assert attempt.leftovers() == ("t",)


def test_a_lost_answer_costs_no_lock_though_there_is_no_time() -> None:
    """Who does not wait looks for its own write all the same."""
    store = Store(FREE)
    landed: list[Record] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Swap):
            assert effect.record is not None
            landed.append(effect.record)
            raise OutcomeUnknown
        if landed and isinstance(effect, Load):
            return Entry(landed[0], 2, CLOCK), 0, 0
        return store(effect)

    hold = play(acquire_steps(observations(), claim(), Terms(timeout=0), 0), answer)
    assert (hold.token, len(landed)) == ("t", 1)


def test_who_was_refused_has_left_nothing() -> None:
    """Somebody else was faster: there is nothing to be taken out of the store again."""
    attempt, store = claim(), Store(FREE, Conflict(TAKEN))
    carry_out(observations(), attempt, store)
    assert attempt.leftovers() == ()


def test_conflicts_without_end_are_met_from_a_distance() -> None:
    """A few are the progress of others; then everybody steps back for a moment, and looks."""
    seen = [Entry(FREE.record, version, CLOCK) for version in range(2, 12)]
    at_full_speed = [Conflict(entry) for entry in seen[:CONFLICTS_AT_FULL_SPEED]]
    later = seen[CONFLICTS_AT_FULL_SPEED:]
    store = Store(FREE, *at_full_speed, *(a for e in later for a in (Conflict(e), e)), DONE)
    carry_out(observations(), claim(), store)
    assert len(store.slept) == len(later)
    assert all(pause <= FIRST_PAUSE for pause in store.slept)


# --- releasing ------------------------------------------------------------------------------


def release(store: Store, kind: str = "server", patience: int = 5 * SECOND) -> bool:
    """Free the lock."""
    attempt = Attempt("k", Free("t"), NO_BEAT, touched=True)
    return play(release_steps(observations(kind), attempt, store.now, store.now + patience), store)


def test_a_release_whose_answer_was_lost_was_one() -> None:
    """Others have had the lock since, so that nothing in the record speaks of it any more."""
    assert release(Store(HELD, OutcomeUnknown("lost"), TAKEN))
    assert not release(Store(TAKEN))
    nothing = Applied(NotHeld(), 1, CLOCK)
    assert release(Store(OutcomeUnknown("lost"), nothing), "scripted")
    assert not release(Store(nothing, TAKEN), "scripted")
    assert not release(Store(nothing, Unavailable("away")), "scripted")


@pytest.mark.parametrize("trouble", [Unavailable("away"), OutcomeUnknown("lost")])
def test_a_release_is_tried_again(trouble: Exception) -> None:
    """While the store is in trouble, ever more rarely."""
    store = Store(*[trouble] * 20, Applied(FREED, 2, CLOCK))
    assert release(store, "scripted", 60 * SECOND)
    assert store.slept[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert max(store.slept) == LONGEST_PAUSE


@pytest.mark.parametrize("trouble", [Unavailable("away"), OutcomeUnknown("lost")])
def test_a_release_gives_up_in_time(trouble: Exception) -> None:
    """With the store's own word, and not before it has to."""
    store = Store(*[trouble] * 100)
    with pytest.raises(type(trouble), match=str(trouble)):
        release(store, "scripted")
    assert 2 * SECOND < store.now <= 5 * SECOND


def test_a_release_says_what_it_does_not_know() -> None:
    """One request was not answered, and then the store was away: the lock may be free."""
    store = Store(HELD, OutcomeUnknown("lost"), *[Unavailable("away")] * 100)
    with pytest.raises(OutcomeUnknown, match="away"):
        release(store)


# --- two parties ----------------------------------------------------------------------------


def test_what_is_lost_cannot_be_handed_over() -> None:
    """Nobody is given a ticket for what somebody else holds."""
    attempt = Attempt("k", Offer("t", "ticket", TTL), touched=True)
    with pytest.raises(LeaseLost):
        play(offer_steps(observations(), attempt, 5 * SECOND), Store(TAKEN))


@pytest.mark.parametrize("command", [Renew("t"), Take("ticket", "t", "me", TTL)])
def test_a_ticket_is_good(command: Renew | Take) -> None:
    """Whoever brings it has the lease."""
    there = HELD if isinstance(command, Renew) else OFFERED
    entering = enter_steps(observations(), Attempt("k", command), Care(), 5 * SECOND)
    assert play(entering, Store(there, DONE)).token == "t"


# --- operators ------------------------------------------------------------------------------


@pytest.mark.parametrize(("fence", "stay"), [(None, []), (1, [2]), (2, [1]), (3, [1, 2])])
def test_an_eviction_of_one_spares_the_others(fence: int | None, stay: list[int]) -> None:
    """By its fence; without one everybody goes."""
    readers = tuple(replace(OTHER, token=f"r{n}", mode="shared", fence=n) for n in (1, 2))
    there = Entry(Record(fence=2, holders=readers), 1, CLOCK)
    store = Store(there, there, DONE)
    evicted = play(evict_steps(observations(), "k", fence, 5 * SECOND), store)
    assert [holder.fence for holder in evicted.holders] == [n for n in (1, 2) if n not in stay]
    if evicted.holders:
        assert [holder.fence for holder in store.asked[-1].record.holders] == stay
    else:
        assert store.kinds == [Load]


@pytest.mark.parametrize("clock", [CLOCK, None])
def test_an_eviction_replaces_what_cannot_be_read(clock: Any) -> None:
    """By an empty record whose fence is as late as the clock, and all who wait are called."""
    broken = replace(BROKEN, now=clock)
    store = Store(broken, broken, DONE, wall=5000)
    assert play(evict_steps(observations(), "k", None, 5 * SECOND), store).holders == ()
    at = 5000 if clock is None else CLOCK.latest
    assert store.asked[-1] == Swap("k", 3, Record(fence=at, updated_at=at), ANYONE, 5 * SECOND)


NEWER = Entry(version=3, now=CLOCK, fault="it is newer", newer=True)


@pytest.mark.parametrize("answers", [[NEWER], [BROKEN, NEWER]])
def test_an_eviction_leaves_alone_what_a_newer_release_wrote(answers: list[Any]) -> None:
    """Whoever wrote it may hold the lock; this release does not know."""
    store = Store(*answers)
    with pytest.raises(CorruptRecord, match="does not evict it") as newer:
        play(evict_steps(observations(), "k", None, 5 * SECOND), store)
    assert newer.value.newer
    assert set(store.kinds) == {Load}


def test_an_eviction_leaves_alone_what_was_put_right_meanwhile() -> None:
    """Somebody was faster, and perhaps somebody holds it by now."""
    store = Store(BROKEN, TAKEN)
    play(evict_steps(observations(), "k", None, 5 * SECOND), store)
    assert store.kinds == [Load, Load]


class SlowStore(Store):
    """The answers to its first writes take longer than any lease lasts."""

    def __init__(self, *answers: Any, slow: int) -> None:
        super().__init__(*answers)
        self.slow = slow

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, Swap) and self.slow:
            self.slow -= 1
            self.now += 2 * TTL
        return super().__call__(effect)


def test_a_lease_is_joined_although_the_first_reply_comes_too_late() -> None:
    """The other party keeps it alive meanwhile: the store is asked again."""
    store = SlowStore(HELD, DONE, HELD, DONE, slow=1)
    hold = play(enter_steps(observations(), Attempt("k", Renew("t")), Care(), 9 * TTL), store)
    assert hold.valid(store.now)


@pytest.mark.parametrize(
    ("command", "there", "error", "said"),
    [
        (Renew("t"), HELD, Unavailable, "may still be held"),
        (Take("ticket", "new", "me", TTL), OFFERED, LeaseLost, "given back"),
    ],
)
def test_a_reply_that_comes_too_late_is_said_to_be(
    command: Any, there: Entry, error: type[Exception], said: str
) -> None:
    """A lease to join may still be held; one that was taken is lost, because the ticket is used."""
    store = SlowStore(there, DONE, slow=9)
    with pytest.raises(error, match=said):
        play(enter_steps(observations(), Attempt("k", command), Care(), TTL), store)


def test_conflicts_do_not_hold_up_a_call_whose_time_is_over() -> None:
    """Others change the record each time; the caller was promised to be back."""

    class Contended(Store):
        def __call__(self, effect: Effect) -> Any:
            if isinstance(effect, (Load, Swap)):
                self.now += SECOND // 10
                version = self.now
                answer: Any = replace(FREE, version=version)
                if isinstance(effect, Swap):
                    return Conflict(answer), self.now
                return answer, self.now, self.now
            return super().__call__(effect)

    store = Contended()
    claiming = acquire_steps(observations(), claim(), Terms(SECOND), 0)
    with pytest.raises(Unavailable, match="Others changed the record"):
        play(claiming, store)
    assert store.now < 2 * SECOND
