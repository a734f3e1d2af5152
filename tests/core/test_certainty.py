"""`Unavailable` and `Misconfigured` say "surely not done": they are only raised where it is so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import (
    Blocked,
    Claim,
    Decision,
    Free,
    Granted,
    NotHeld,
    Offer,
    Renew,
    Take,
)
from holdfast.core.contract import Amended, Applied, Conflict, Entry, Page, Swapped, exactly
from holdfast.core.effects import Amend, Apply, Effect, Load, Scan, Steps, Swap
from holdfast.core.evicting import evict_steps
from holdfast.core.handing_over import enter_steps, offer_steps
from holdfast.core.holds import Attempt, Care, hold_of
from holdfast.core.listing import Purged, purge_steps
from holdfast.core.observations import Observations, View
from holdfast.core.records import EMPTY, SECOND, Holder, Record
from holdfast.core.releasing import release_steps
from holdfast.core.renewing import renew_steps
from holdfast.core.steps import CUT_OFF_WITHIN, apply_steps
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, StoreReadOnly, Unavailable
from holdfast.runtime import cleaning
from tests.core.test_steps import (
    BROKEN,
    CLOCK,
    DONE,
    FREE,
    HELD,
    MINE,
    OTHER,
    TAKEN,
    TTL,
    Store,
    claim,
    observations,
)
from tests.helpers import faulty_locks
from tests.play import play

UNTIL = 5 * SECOND
AWAY = [Unavailable("away")] * 100
READ_ONLY = [StoreReadOnly("a replica now")] * 100

Call = Callable[[Observations], Steps[Any]]
CALLS: dict[str, Call] = {
    "acquire": lambda knows: acquire_steps(knows, claim(), Terms(2 * SECOND), 0),
    "try_acquire": lambda knows: acquire_steps(knows, claim(), Terms(0), 0),
    "release": lambda knows: release_steps(knows, Attempt("k", Free("t")), 0, UNTIL),
    "hand_over": lambda knows: offer_steps(knows, Attempt("k", Offer("t", "new", TTL)), UNTIL),
    "take": lambda knows: enter_steps(
        knows, Attempt("k", Take("t", "new", "me", TTL)), Care(), UNTIL
    ),
    "evict": lambda knows: evict_steps(knows, "k", None, UNTIL),
}


@pytest.mark.parametrize("after", [AWAY, READ_ONLY], ids=["away", "read only"])
@pytest.mark.parametrize("unknown", [1, 2, 3])
@pytest.mark.parametrize("call", CALLS)
def test_a_script_without_an_answer_stays_in_doubt(
    call: str, unknown: int, after: list[HoldfastError]
) -> None:
    """However often the store is tried in vain afterwards, and for whatever reason."""
    look = [HELD] if call == "evict" else []
    store = Store(*look, *[OutcomeUnknown("lost")] * unknown, *after)
    with pytest.raises(OutcomeUnknown):
        play(CALLS[call](observations("scripted")), store)


@pytest.mark.parametrize("call", CALLS)
def test_a_script_that_was_never_taken_is_surely_not_done(call: str) -> None:
    """Without a doubt there is none in the error either."""
    look = [HELD] if call == "evict" else []
    for after, kind in ((AWAY, Unavailable), (READ_ONLY, Misconfigured)):
        with pytest.raises(kind):
            play(CALLS[call](observations("scripted")), Store(*look, *after))


@pytest.mark.parametrize("after", [AWAY, READ_ONLY], ids=["away", "read only"])
@pytest.mark.parametrize("call", [name for name in CALLS if name not in ("evict", "take")])
def test_a_swap_that_may_still_be_on_its_way_stays_in_doubt(
    call: str, after: list[HoldfastError]
) -> None:
    """A look showed the version that it expects: it may be carried out after that look."""
    there = FREE if "acquire" in call else HELD
    store = Store(there, OutcomeUnknown("lost"), there, *after)
    with pytest.raises(OutcomeUnknown):
        play(CALLS[call](observations()), store)


@pytest.mark.parametrize("after", [AWAY, READ_ONLY], ids=["away", "read only"])
def test_a_swap_that_came_too_late_is_no_longer_in_doubt(after: list[HoldfastError]) -> None:
    """A look showed another version: what expected the one before will never be carried out."""
    store = Store(FREE, OutcomeUnknown("lost"), TAKEN, *after)
    with pytest.raises((Unavailable, Misconfigured)):
        play(acquire_steps(observations(), claim(), Terms(20 * SECOND, fair=False), 0), store)


@pytest.mark.parametrize("after", [AWAY, READ_ONLY], ids=["away", "read only"])
@pytest.mark.parametrize(("call", "late"), [("try_acquire", 2 * TTL), ("renew", 0)])
def test_a_swap_that_a_look_shows_stays_in_doubt(
    call: str, late: int, after: list[HoldfastError]
) -> None:
    """It was carried out, though in vain. That the next one was surely not says nothing of it."""
    hold = hold_of("k", Granted(MINE), 0, Care())
    calls = CALLS | {"renew": lambda knows: renew_steps(knows, hold)}
    before, done, store = HELD if call == "renew" else FREE, list[Record](), Store()

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Load):
            shown = Entry(done[0], 7, exactly(CLOCK.latest + late)) if done else before
            return shown, store.now, store.now
        if isinstance(effect, Swap) and done:
            raise after[0]
        if isinstance(effect, Swap) and effect.record is not None:
            done.append(effect.record)
            raise OutcomeUnknown("lost")
        return store(effect)

    with pytest.raises(OutcomeUnknown):
        play(calls[call](observations()), answer)


def test_an_amend_without_an_answer_stays_in_doubt() -> None:
    """It expects no version, so that no look can show that it will never be carried out."""
    knows = observations("amending")
    knows.contend("k")
    knows.read_clock(View(CLOCK, 0, 0, EMPTY, None))
    attempt = Attempt("k", Free("t"), "beat")
    store = Store()

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Amend):
            raise OutcomeUnknown("lost")
        return store(effect)

    with pytest.raises(OutcomeUnknown):
        play(apply_steps(knows, attempt, attempt.command, 0), answer)
    attempt.saw(HELD.version, HELD.record)
    assert attempt.unsettled


@pytest.mark.parametrize("answers", [(FREE, Conflict(TAKEN)), (TAKEN, DONE)])
def test_a_swap_does_not_settle_a_command_before_it(answers: tuple[Any, ...]) -> None:
    """What became of the swap is known. The command expects no version, and may still come."""
    queued = replace(claim().command, queue=True, patience=TTL)
    attempt = Attempt("k", queued, touched=True, unsettled=True, doubted=True, commanded=True)
    verdict, _ = play(
        apply_steps(observations(), attempt, attempt.command, 0), Store(*answers, DONE)
    )
    assert isinstance(verdict, Blocked)
    assert attempt.unsettled


def test_a_script_that_may_still_be_on_its_way_stays_in_doubt() -> None:
    """A later one was answered; the first may arrive after that, and get the lock."""
    blocked = Applied(Blocked((OTHER,), ()), 1, CLOCK)
    store = Store(OutcomeUnknown("lost"), blocked, *AWAY)
    with pytest.raises(OutcomeUnknown):
        play(acquire_steps(observations("scripted"), claim(), Terms(20 * SECOND), 0), store)


@pytest.mark.parametrize("there", [FREE, TAKEN], ids=["as it was", "changed"])
def test_a_swap_before_an_amend_that_wrote_nothing(there: Entry) -> None:
    """It may still be carried out if the amend has seen the version that the swap expects."""
    knows = observations("amending")
    knows.contend("k")
    knows.read_clock(View(CLOCK, 0, 0, EMPTY, None))
    attempt = claim()
    attempt.unsettled, attempt.expected = True, FREE.version

    def answer(effect: Effect) -> Any:
        return Amended(Decision(NotHeld()), there), 0

    play(
        apply_steps(knows, attempt, Renew("t"), 0),
        lambda e: answer(e) if isinstance(e, Amend) else Store()(e),
    )
    assert attempt.unsettled == (there is FREE)


def test_an_answer_ends_the_doubt() -> None:
    """A swap that was refused shows that the one before it was not carried out."""
    store = Store(FREE, OutcomeUnknown("lost"), FREE, Conflict(TAKEN), *AWAY)
    with pytest.raises(Unavailable):
        play(acquire_steps(observations(), claim(), Terms(20 * SECOND, fair=False), 0), store)


@pytest.mark.parametrize("call", ["release", "evict"])
def test_a_removal_that_was_delivered_twice_stays_in_doubt(call: str) -> None:
    """Its second delivery is refused, and shows that somebody is gone: perhaps by the first."""
    store = Store(HELD, *[HELD] * (call == "evict"), Conflict(FREE))

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Amend):
            raise Unavailable("away")
        return store(effect)

    with pytest.raises(OutcomeUnknown):
        play(CALLS[call](observations("amending")), answer)


def test_an_eviction_of_what_cannot_be_read_stays_in_doubt() -> None:
    """The empty record may have been written."""
    for after in ([*AWAY], [BROKEN, *AWAY]):
        store = Store(BROKEN, BROKEN, OutcomeUnknown("lost"), *after)
        with pytest.raises(OutcomeUnknown):
            play(evict_steps(observations(), "k", None, UNTIL), store)
    store = Store(BROKEN, BROKEN, OutcomeUnknown("lost"), BROKEN, DONE)
    assert play(evict_steps(observations(), "k", None, UNTIL), store).holders == ()


# --- a connection that broke ----------------------------------------------------------------


class Scripted:
    """A store that runs the rules, whose first answers are lost after a time."""

    def __init__(self, lost: int, silent_for: int) -> None:
        self.lost = lost
        self.silent_for = silent_for
        self.inner = Store()
        self.beats: list[str] = []

    def __call__(self, effect: Effect) -> Any:
        if not isinstance(effect, Apply):
            return self.inner(effect)
        assert isinstance(effect.command, Claim)
        self.beats.append(effect.beat)
        if len(self.beats) <= self.lost:
            self.inner.now += self.silent_for
            raise OutcomeUnknown("lost")
        # The first one was carried out, and is found again by its token.
        expires_at = CLOCK.latest + TTL
        holder = Holder("t", 7, "me", "exclusive", TTL, 0, expires_at, self.beats[0])
        return Applied(Granted(holder), 1, CLOCK), self.inner.now


def test_who_was_cut_off_asks_again_though_there_is_no_time() -> None:
    """The connection was closed: a claim that does not wait finds its token all the same, and its
    deadline counts from the write that was carried out."""
    store = Scripted(1, 1000)
    hold = play(acquire_steps(observations("scripted"), claim(), Terms(timeout=0), 0), store)
    assert len(store.beats) == len(set(store.beats)) == 2
    assert (hold.fence, hold.acquired) == (7, 0)


@pytest.mark.parametrize(
    ("lost", "silent_for", "asked"), [(2, 1000, 2), (1, CUT_OFF_WITHIN + 1, 1)]
)
def test_who_does_not_wait_does_not_ask_for_ever(lost: int, silent_for: int, asked: int) -> None:
    """A second time in vain, or a store that said nothing for long, is enough."""
    store = Scripted(lost, silent_for)
    attempt = claim()
    with pytest.raises(OutcomeUnknown):
        play(acquire_steps(observations("scripted"), attempt, Terms(timeout=0), 0), store)
    assert len(store.beats) == asked
    assert attempt.leftovers() == ("t",)
    assert Load not in store.inner.kinds


# --- calls that write more than one record --------------------------------------------------


@pytest.mark.parametrize("dropped_before", [0, 3])
@pytest.mark.parametrize("drops", [0, 1])
def test_a_purge_that_has_dropped_something(drops: int, dropped_before: int) -> None:
    """When it cannot go on, on this page or the next, it does not say that nothing was done."""
    old = Entry(Record(fence=1, updated_at=1), 1, exactly(10**15))
    answers = iter([(Swapped(None), 0)] * drops)

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Scan):
            return Page((("a", old), ("b", old)))
        for one in answers:
            return one
        raise Unavailable("away")

    so_far = Purged(dropped_before, None)
    with pytest.raises(OutcomeUnknown if drops or dropped_before else Unavailable, match="away"):
        play(purge_steps(observations(), "", so_far, 60 * SECOND), answer)


@pytest.mark.parametrize("clean_up", ["fine", "refuse"])
def test_an_acquire_all_that_got_something(clean_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When that cannot be given back, it does not say that nothing was done."""
    monkeypatch.setattr(cleaning, "CLEAN_UP_FOR", SECOND // 10)
    with faulty_locks(store_patience=0) as (locks, store):
        store.plan("fine", "fine", "refuse", then=clean_up)
        with pytest.raises(Unavailable if clean_up == "fine" else OutcomeUnknown):
            locks.acquire_all(["a", "b"])
        store.plan()
        assert locks.show("a").free is (clean_up == "fine")


@pytest.mark.parametrize("kind", ["server", "amending"])
def test_a_refused_swap_that_was_done_before_is_not_surely_not_done(kind: str) -> None:
    """It was delivered twice: the second time it is refused, because the first time it was done."""
    store = Store(FREE)
    done: list[Entry] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Swap) and not done:
            assert effect.record is not None
            done.append(Entry(effect.record, 9, CLOCK))
            return Conflict(done[0]), 0
        if done and isinstance(effect, (Swap, Amend, Load)):
            raise Unavailable("away")
        return store(effect)

    attempt = claim()
    steps = apply_steps(observations(kind), attempt, attempt.command, 0)
    if kind == "amending":
        with pytest.raises(OutcomeUnknown):
            play(steps, answer)
    else:
        assert isinstance(play(steps, answer)[0], Granted)
    assert attempt.touched
