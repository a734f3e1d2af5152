"""How a claim waits: what its place in the queue lasts for, and what it asks when it is woken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from holdfast.core.acquiring import (
    ANNOUNCE_AFTER,
    FRONT_PLACE_TTL,
    QUEUE_PLACE_TTL,
    TTL_PER_PLACE_AHEAD,
    Terms,
    acquire_all_steps,
    acquire_steps,
)
from holdfast.core.commands import SHOWN, Blocked, Claim, Free, Granted
from holdfast.core.contract import Applied, Conflict, Entry, Swapped, exactly
from holdfast.core.effects import Apply, Draw, Effect, Emit, Keep, Load, Now, Sleep, Swap, Wait
from holdfast.core.events import Waiting
from holdfast.core.holds import BEATS_PER_TTL, Attempt, Hold
from holdfast.core.observations import AFTER_EXPIRY, Observations
from holdfast.core.records import SECOND, Holder, Record, Waiter
from holdfast.core.releasing import release_steps
from holdfast.core.steps import LONGEST_PLACE_PAUSE
from holdfast.errors import AcquireTimeout, Busy, LeaseLost, Misconfigured, Unavailable
from holdfast.testing.sim.kinds import KINDS
from tests.play import play

TTL = 1000 * SECOND
HOLDER = Holder("other", 1, "you", "exclusive", TTL, 0, TTL, "b")


def waiter(number: int) -> Waiter:
    """Somebody ahead, whose place lasts the longer the further back it is."""
    return Waiter(f"w{number}", "you", "exclusive", TTL, 0, (4 + number) * SECOND, "b")


def by_script(ahead: int, ttl: int = TTL) -> tuple[list[Claim], list[int]]:
    """What a claim asks for that is refused twice, with so many ahead, and how it sleeps."""
    claims: list[Claim] = []
    sleeps: list[int] = []
    shown = tuple(waiter(number) for number in range(min(ahead, SHOWN)))

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Apply):
            claim = effect.command
            assert isinstance(claim, Claim)
            claims.append(claim)
            verdict: Any = Blocked((HOLDER,), shown, claim.queue, ahead - len(shown))
            if len(claims) == 3:
                verdict = Granted(
                    Holder(claim.token, 2, "me", "exclusive", ttl, 0, ttl, effect.beat)
                )
            return Applied(verdict, 1, exactly(SECOND)), 0
        if isinstance(effect, Wait):
            sleeps.append(effect.at_most)
        return {Now: 0, Draw: "b1"}.get(type(effect))

    attempt = Attempt("k", Claim("t", "me", "exclusive", ttl))
    terms = Terms(long_wait=None)  # only looks at the store count here
    play(acquire_steps(Observations(KINDS["scripted"].facts), attempt, terms, 0), answer)
    return claims, sleeps


def test_the_first_give_a_sign_of_life_more_often() -> None:
    """Who dies at the head of the queue is in everybody's way; who dies far back is not."""
    lasts = {ahead: by_script(ahead)[0][-1].patience for ahead in (0, 1, 5, 50, 1000)}
    assert lasts[0] == FRONT_PLACE_TTL
    assert sorted(lasts.values()) == list(lasts.values())
    assert lasts[1000] == QUEUE_PLACE_TTL + 1000 * TTL_PER_PLACE_AHEAD


@pytest.mark.parametrize("ahead", [0, 3, 200])
def test_a_place_is_renewed_in_good_time(ahead: int) -> None:
    """A waiter shows itself three times while its place lasts."""
    claims, sleeps = by_script(ahead)
    assert claims[1].queue
    assert sleeps[1] <= claims[1].patience // BEATS_PER_TTL


def test_a_crowd_does_not_look_whenever_the_first_may_be_dead() -> None:
    """Who is right behind them does; who is far back only when all who are shown may be."""
    _, (_, far_back) = by_script(1000)
    assert far_back > 15 * SECOND


def test_a_place_does_not_outlast_the_lease_that_it_is_for() -> None:
    """Whoever asks for a short lease dies as quickly while it waits."""
    assert by_script(1000, 2 * SECOND)[0][-1].patience == 2 * SECOND


def test_where_a_place_is_a_write_it_lasts_longer() -> None:
    """A sign of life that gets into the way of others is given less often."""
    places: list[Waiter] = []
    record = Record(fence=1, holders=(HOLDER,), updated_at=1)

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Swap):
            assert effect.record is not None
            places.extend(effect.record.queue)
            raise Unavailable("That is enough.")
        entry = Entry(record, 1, exactly(SECOND))
        return {Now: 0, Draw: "b1", Load: (entry, 0, 0)}.get(type(effect))

    attempt = Attempt("k", Claim("t", "me", "exclusive", TTL))
    terms = Terms(store_patience=0, fair=True)
    with pytest.raises(Unavailable):
        play(acquire_steps(Observations(KINDS["server"].facts), attempt, terms, 0), answer)
    assert [place.ttl for place in places] == [QUEUE_PLACE_TTL]


# --- when it gets in line, and when it looks ------------------------------------------------


class Line:
    """A lock that others hold or wait for, on a store whose clock is that of all."""

    def __init__(self, *holders: Holder, queue: tuple[Waiter, ...] = ()) -> None:
        self.t = 0
        self.record = Record(fence=1, holders=holders, queue=queue)
        self.version = 1
        self.queued_at: int | None = None
        self.looks: list[int] = []
        self.told: list[Waiting] = []

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, (Load, Swap)):
            self.looks.append(self.t)
        if isinstance(effect, Swap):
            assert effect.record is not None
            self.record, self.version = effect.record, self.version + 1
            if effect.record.queue and self.queued_at is None:
                self.queued_at = self.t
            return Swapped(self.version, exactly(self.t)), self.t
        if isinstance(effect, Wait):
            self.t += effect.at_most
        if isinstance(effect, Emit) and isinstance(effect.event, Waiting):
            self.told.append(effect.event)
        entry = Entry(self.record, self.version, exactly(self.t))
        return {Now: self.t, Draw: "b1", Load: (entry, self.t, self.t)}.get(type(effect))

    def claim(self, terms: Terms, ttl: int = TTL) -> Hold:
        """Claim it."""
        attempt = Attempt("k", Claim("t", "me", "exclusive", ttl))
        return play(
            acquire_steps(Observations(KINDS["server"].facts), attempt, terms, self.t), self
        )


@pytest.mark.parametrize(("fair", "queued_at"), [(None, ANNOUNCE_AFTER), (True, 0), (False, None)])
def test_when_a_claim_gets_in_line(fair: bool | None, queued_at: int | None) -> None:
    """After a moment; at once if it is told to, and never if it is told not to."""
    line = Line(HOLDER)
    with pytest.raises(AcquireTimeout):
        line.claim(Terms(20 * SECOND, fair))
    assert line.queued_at == queued_at
    assert 20 * SECOND <= line.t < 21 * SECOND


@pytest.mark.parametrize("fair", [None, True, False])
def test_who_does_not_wait_does_not_get_in_line(fair: bool | None) -> None:
    """It leaves no place behind that others would wait for."""
    line = Line(HOLDER)
    with pytest.raises(Busy):
        line.claim(Terms(0, fair))
    assert line.looks == [0]


def test_a_dead_holder_is_succeeded_when_it_has_run_out() -> None:
    """Not at the next look that would come anyway; and the claim says how long it took."""
    started = 7 * SECOND
    line = Line(Holder("other", 1, "you", "exclusive", TTL, 0, started + 400_000, "b"))
    line.t = started
    hold = line.claim(Terms())
    assert 400_000 < line.t - started < 500_000
    assert hold.waited == line.t - started
    assert [event.frees_in for event in line.told] == [(line.t - started) / SECOND]


def test_who_is_behind_the_dead_does_not_wait_for_a_look_by_the_clock() -> None:
    """Nobody holds it, and those ahead in the queue were killed."""
    killed = [Waiter(f"w{n}", "o", "exclusive", TTL, 0, n * 100_000, "b") for n in (1, 2)]
    line = Line(queue=tuple(killed))
    line.claim(Terms())
    assert 200_000 < line.t < 300_000
    assert [event.frees_in for event in line.told] == [(100_000 + 1000 + AFTER_EXPIRY) / SECOND]


def test_when_it_is_free_is_said_of_its_holder() -> None:
    """Not of the short places ahead in the queue, after which the holder still has the lock."""
    holder = Holder("other", 1, "you", "exclusive", TTL, 0, 20 * SECOND, "b")
    line = Line(holder, queue=(Waiter("w1", "o", "exclusive", TTL, 0, 3 * SECOND, "b"),))
    with pytest.raises(AcquireTimeout):
        line.claim(Terms(SECOND))
    assert {event.frees_in is not None and event.frees_in > 18 for event in line.told} == {True}


def test_what_was_lost_while_the_others_were_waited_for() -> None:
    """Many keys are got all or not at all, though nobody was there to tell of the loss."""
    line = Line(Holder("other", 1, "you", "exclusive", TTL, 0, 3 * SECOND, "b"))
    free = Line()
    kept: list[Hold] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Keep):
            kept.append(effect.hold)
        at_first = getattr(effect, "key", "b") == "a"
        free.t = line.t
        return free(effect) if at_first else line(effect)

    attempts = [Attempt(key, Claim(key, "me", "exclusive", SECOND)) for key in ("b", "a")]
    with pytest.raises(LeaseLost, match="'a'"):
        play(acquire_all_steps(Observations(KINDS["server"].facts), attempts, Terms()), answer)
    assert [hold.key for hold in kept] == ["a", "b"]


# --- being woken ----------------------------------------------------------------------------

TAKEN = Entry(Record(fence=1, holders=(HOLDER,), updated_at=1), 1, exactly(SECOND))
FREED = Entry(Record(fence=1, updated_at=2, freed="other"), 2, exactly(SECOND))


class Store:
    """Answers that are given one after the other, and what was asked for."""

    def __init__(self, *, found: Entry | None, swaps: list[Any], loads: list[Entry]) -> None:
        self.asked: list[type] = []
        self._found = found
        self._swaps = swaps
        self._loads = loads

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, (Load, Swap, Wait)):
            self.asked.append(type(effect))
        if isinstance(effect, Load):
            return self._loads.pop(0), 0, 0
        if isinstance(effect, Swap):
            return self._swaps.pop(0), 0
        return {Now: 0, Draw: "b1", Wait: self._found}.get(type(effect))


def claimed(observations: Observations, store: Store) -> None:
    """Claim the lock and get it."""
    claim = Claim("t", "me", "exclusive", TTL)
    play(acquire_steps(observations, Attempt("k", claim), Terms(fair=False), 0), store)


def test_who_is_shown_what_is_there_does_not_look_again() -> None:
    """A claim that was woken with the record goes straight to its swap."""
    store = Store(found=FREED, loads=[TAKEN], swaps=[Swapped(3, exactly(SECOND))])
    claimed(Observations(KINDS["server"].facts), store)
    assert store.asked == [Load, Wait, Swap]


def test_what_was_shown_may_be_gone() -> None:
    """Then the swap says what is there instead, and the claim waits again."""
    swaps = [Conflict(TAKEN), Swapped(5, exactly(SECOND))]
    store = Store(found=FREED, loads=[TAKEN], swaps=swaps)
    claimed(Observations(KINDS["server"].facts), store)
    assert store.asked == [Load, Wait, Swap, Wait, Swap]


def test_a_fault_that_was_shown_is_no_record() -> None:
    """Whoever looks for itself reports it."""
    broken = Entry(version=2, now=exactly(SECOND), fault="it is broken")
    store = Store(found=broken, loads=[TAKEN, FREED], swaps=[Swapped(3, exactly(SECOND))])
    claimed(Observations(KINDS["server"].facts), store)
    assert store.asked == [Load, Wait, Load, Swap]


@pytest.mark.parametrize(("waited", "looks"), [(False, 0), (True, 1)])
def test_who_had_to_wait_looks_before_it_claims_again(waited: bool, looks: int) -> None:
    """A lock that nobody else wanted is claimed again without a look. One that others wanted
    they will have by then, and a write in vain costs more than a look."""
    observations = Observations(KINDS["server"].facts)
    swapped = [Swapped(version, exactly(SECOND)) for version in (3, 4, 5)]
    store = Store(found=FREED, loads=[TAKEN if waited else FREED, FREED], swaps=swapped)
    claimed(observations, store)
    free = Attempt("k", Free("t"), "-", touched=True)
    assert play(release_steps(observations, free, 0, SECOND), store)
    store.asked.clear()
    claimed(observations, store)
    assert store.asked.count(Load) == looks


# --- a long wait ------------------------------------------------------------------------------


def wait_for_long(grant: Callable[[list[str]], str]) -> tuple[Attempt, Hold]:
    """A claim that is refused ten thousand times, one each second, and then granted: which of its
    writes was it?"""
    beats: list[str] = []
    now = 0

    def answer(effect: Effect) -> Any:
        nonlocal now
        if isinstance(effect, Apply):
            beats.append(effect.beat)
            verdict: Any = Blocked((HOLDER,), (), True)
            if len(beats) == 10_000:
                beat = grant(beats)
                verdict = Granted(Holder("t", 2, "me", "exclusive", LONG_TTL, 0, LONG_TTL, beat))
            return Applied(verdict, 1, exactly(SECOND)), now
        if isinstance(effect, Wait):
            now += SECOND
        return {Now: now, Draw: f"b{len(beats)}"}.get(type(effect))

    note = {"by": "me"}  # so it inherits nothing, of which the clock would tell more
    attempt = Attempt("k", Claim("t", "me", "exclusive", LONG_TTL, None, note))
    steps = acquire_steps(Observations(KINDS["scripted"].facts), attempt, Terms(), 0)
    return attempt, play(steps, answer)


LONG_TTL = 1_000_000 * SECOND


def test_a_long_wait_remembers_few_writes() -> None:
    """Whoever stands by for weeks does not grow meanwhile."""
    attempt, hold = wait_for_long(lambda beats: beats[-1])
    assert hold.acquired == 9_999 * SECOND
    assert len(attempt.sent) < 100


def test_a_write_of_long_ago_that_landed_now() -> None:
    """Something below us sent it twice. When it was sent is forgotten, but not since when we have
    sent any: the lease counts from then."""
    _, hold = wait_for_long(lambda beats: beats[5_000])
    assert hold.acquired == 0


# --- many who come together -------------------------------------------------------------------


def crowded_out(
    steps_of: Callable[[Observations, Attempt], Any], attempt: Attempt, ahead: int = 0
) -> list[Effect]:
    """What is done where somebody else is always faster, for ten times."""
    done: list[Effect] = []
    queue = tuple(waiter(number) for number in range(ahead))
    entry = Entry(Record(fence=1, holders=(HOLDER,), queue=queue, updated_at=1), 1, exactly(SECOND))

    def answer(effect: Effect) -> Any:
        done.append(effect)
        if isinstance(effect, Swap):
            if sum(isinstance(one, Swap) for one in done) == 10:
                raise Misconfigured("That is enough.")
            return Conflict(entry), 0
        drawn = "ffff" if isinstance(effect, Draw) and effect.size == 2 else "b1"
        return {Now: 0, Draw: drawn, Load: (entry, 0, 0)}.get(type(effect))

    with pytest.raises(Misconfigured):
        play(steps_of(Observations(KINDS["server"].facts), attempt), answer)
    return [effect for effect in done if isinstance(effect, (Load, Swap, Sleep))]


@pytest.mark.parametrize("ahead", [0, 7])
def test_who_wants_a_place_in_the_queue_keeps_its_distance(ahead: int) -> None:
    """Ever more of it, to a limit. And it looks again after each pause, as what it saw is old. Who
    has a place already competes with nobody for one, so a queue makes it no longer."""
    claim = Claim("t", "me", "exclusive", TTL)
    terms = Terms(timeout=SECOND, fair=True)
    done = crowded_out(
        lambda observations, attempt: acquire_steps(observations, attempt, terms, 0),
        Attempt("k", claim),
        ahead,
    )
    pauses = [effect.duration for effect in done if isinstance(effect, Sleep)]
    assert pauses == sorted(pauses)
    assert pauses[0] < SECOND // 100
    assert LONGEST_PLACE_PAUSE >= pauses[-1] > 10 * pauses[0]
    after = [following for one, following in pairwise(done) if isinstance(one, Sleep)]
    assert all(isinstance(effect, Load) for effect in after)


def test_who_gives_a_lock_back_is_in_a_hurry() -> None:
    """The others wait for that."""
    attempt = Attempt("k", Free(HOLDER.token), touched=True)
    done = crowded_out(
        lambda observations, attempt: release_steps(observations, attempt, 0, SECOND), attempt
    )
    pauses = [effect.duration for effect in done if isinstance(effect, Sleep)]
    assert len(pauses) > 2
    assert max(pauses) < SECOND // 40
