"""Whoever frees a lock may grant it to the first in the queue: who inherits, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import ANYONE, FREED, Claim, Free, Granted, Stamp
from holdfast.core.contract import Entry, Facts, exactly
from holdfast.core.effects import Amend, Load, Swap, Wait
from holdfast.core.holds import Attempt, Care
from holdfast.core.observations import Observations
from holdfast.core.records import LARGEST_FENCE, SECOND, Record, Waiter, decode, encode
from holdfast.core.releasing import release_steps
from holdfast.core.steps import apply_steps
from holdfast.core.validity import deadline
from holdfast.errors import Refused
from holdfast.stores.waiting.notices import inherited_by
from tests.core.test_amending import HOST, NETWORK, Amending, contended
from tests.core.test_steps import CLOCK, MINE, OTHER, TTL, claim
from tests.play import play

NOW = CLOCK.latest
FIRST = Waiter("first", "w1", "exclusive", 3 * SECOND, 0, NOW + 3 * SECOND, "p1", lease=TTL)
NEXT = replace(FIRST, token="next", owner="w2", beat="p2")
KEPT = Care()
HELD = Record(fence=1, holders=(MINE,), queue=(FIRST, NEXT), updated_at=1)


def free(record: Record, heir: str = "first", token: str = "t", dead: Any = rules.nobody) -> Any:
    """What the rules decide about a release with an heir."""
    return rules.decide(Free(token, heir), record, dead, Stamp(NOW, "beat"))


def test_the_heir_has_the_grant_with_the_write_that_frees() -> None:
    """As if it had claimed at that moment; it keeps the beat of its place."""
    decision = free(HELD)
    [holder] = decision.record.holders
    assert decision.verdict is FREED
    assert decision.wake == ("first",)
    assert (holder.token, holder.owner, holder.ttl, holder.beat) == ("first", "w1", TTL, "p1")
    assert (holder.acquired_at, holder.expires_at) == (NOW, NOW + TTL)
    assert HELD.fence < holder.fence < decision.record.fence
    assert decision.record.queue == (NEXT,)
    assert free(decision.record).verdict is FREED  # once more, and nothing is written
    assert free(decision.record).record is None


def test_the_heir_finds_its_grant_with_all_its_numbers() -> None:
    """It only looks, and can pass the lock on inside of its process like any other holder."""
    record = free(HELD).record
    claim = Claim("first", "w1", "exclusive", TTL, inherits=True)
    found = rules.decide(claim, record, rules.nobody, Stamp(NOW, "b"))
    assert found.record is None
    assert found.verdict == Granted(record.holders[0], (NEXT,), record.fence)


@pytest.mark.parametrize(
    ("record", "heir"),
    [
        (HELD, "next"),  # not the first
        (HELD, "gone"),
        (HELD, ""),
        (replace(HELD, queue=(replace(FIRST, lease=None),)), "first"),  # an older client
        (replace(HELD, queue=(replace(FIRST, mode="shared"),)), "first"),
        (replace(HELD, fence=LARGEST_FENCE), "first"),  # there is no number left for it
    ],
)
def test_who_is_no_heir_is_woken(record: Record, heir: str) -> None:
    """And claims by itself, as ever."""
    decision = free(record, heir)
    assert decision.record.holders == ()
    assert decision.wake == ("first",)


def test_a_grant_lasts_as_if_it_was_written_with_the_place() -> None:
    """The clock of a release may have been read before the place was written, whose time the heir
    counts from."""
    placed = NOW + SECOND
    first = replace(FIRST, expires_at=placed + FIRST.ttl)
    [holder] = free(replace(HELD, queue=(first,))).record.holders
    assert holder.expires_at == placed + TTL


def test_nobody_inherits_without_a_clock() -> None:
    """By silence alone, nobody could tell since when."""
    command = Free("t", "first")
    unread = rules.decide(command, HELD, rules.nobody, Stamp(NOW, "beat", False))
    assert unread.record is not None
    assert unread.record.holders == ()
    assert free(replace(HELD, queue=(replace(FIRST, expires_at=0),))).record.holders == ()


def test_the_dead_inherit_nothing() -> None:
    """A place that has run out is nobody's."""
    decision = free(HELD, dead=lambda party: party.token == "first")
    assert decision.record.holders == ()
    assert decision.wake == ("next",)


def test_only_the_last_holder_has_an_heir() -> None:
    """Somebody who leaves the queue frees nothing, and nor does one of two readers."""
    assert free(replace(HELD, holders=()), "next", token="first").record.holders == ()
    readers = (replace(MINE, mode="shared"), replace(OTHER, mode="shared"))
    decision = free(replace(HELD, holders=readers))
    assert decision.record.holders == readers[1:]
    assert free(replace(HELD, queue=())).wake == ANYONE


def test_what_a_place_says_is_in_its_text() -> None:
    """A place of an older client says nothing of a lease, and reads as ever."""
    assert decode(encode(HELD)) == HELD
    assert b"lease" not in encode(replace(HELD, queue=(replace(FIRST, lease=None),)))


def waits_and_inherits(after: int) -> tuple[Any, Amending]:
    """A claim that waits; after a time the lock is granted to its place, and it looks."""
    store, attempt = Amending(Entry(Record(1, (OTHER,)), 2, CLOCK)), claim()

    def answer(effect: Any) -> Any:
        if isinstance(effect, Wait) and store.entry.record.queue:
            store.now += after
            now = exactly(NOW + store.now)
            freed = rules.decide(
                Free("other", "t"), store.entry.record, rules.nobody, Stamp(now.latest, "-")
            )
            assert freed.record is not None
            store.asked.append(Wait)
            store.entry = Entry(freed.record, 7, now)
            store.now += 10
            return None
        return store(effect)

    return play(acquire_steps(contended(), attempt, Terms(60 * SECOND), 0), answer), store


def test_an_heir_only_looks() -> None:
    """One request, which writes nothing; its deadline is by the clock that it was shown."""
    hold, store = waits_and_inherits(SECOND // 2)
    assert store.asked == [Load, Swap, Wait, Load]
    assert store.entry.version == 7
    assert hold.deadline == deadline(SECOND // 2 + 10, TTL)
    assert hold.last == store.entry.record.fence


def waits_and_is_told(
    late: int = 0,
    told: dict[str, Any] | None = None,
    care: Care = KEPT,
    given_up: bool = False,
) -> tuple[Any, Amending, Attempt, Observations]:
    """The same, and the wake-up brings the grant, so late; perhaps to a claim that was given up."""
    store, attempt, knows = Amending(Entry(Record(1, (OTHER,)), 2, CLOCK)), claim(), contended()

    def answer(effect: Any) -> Any:
        if isinstance(effect, Wait) and store.entry.record.queue:
            store.now += SECOND // 2
            queue = (*store.entry.record.queue, NEXT)
            freed = rules.decide(
                Free("other", "t"),
                replace(store.entry.record, queue=queue),
                rules.nobody,
                Stamp(NOW + store.now, "-"),
            ).record
            assert freed is not None
            store.asked.append(Wait)
            store.now += late
            store.entry = Entry(freed, 7, exactly(NOW + store.now))
            inherited = inherited_by(freed, "t")
            assert inherited is not None
            attempt.given_up = given_up
            return replace(inherited, **(told or {}))
        return store(effect)

    terms = Terms(60 * SECOND, care=care)
    return play(acquire_steps(knows, attempt, terms, 0), answer), store, attempt, knows


def test_an_heir_that_was_told_asks_for_nothing() -> None:
    """It counts from when it wrote its place, and knows the rest as if it had looked."""
    hold, store, _, _ = waits_and_is_told()
    [granted] = store.entry.record.holders
    assert store.asked == [Load, Swap, Wait]
    assert hold.holder == granted
    assert (hold.deadline, hold.renewed) == (deadline(0, TTL), 0)
    assert hold.acquired == hold.alive == hold.waited == SECOND // 2
    assert hold.last == store.entry.record.fence
    assert hold.contended


def test_what_was_told_is_released_and_undone_like_any_other_grant() -> None:
    """Nothing is remembered that has changed, and whoever gives up knows what to free."""
    hold, store, attempt, knows = waits_and_is_told()
    assert "k" not in knows
    assert attempt.leftovers() == ("t",)
    assert not attempt.unsettled
    store.asked.clear()
    assert play(release_steps(knows, Attempt("k", Free("t")), store.now, SECOND), store)
    assert store.asked == [Amend]
    assert hold.token not in [holder.token for holder in store.entry.record.holders]


def test_a_claim_that_was_given_up_inherits_nothing() -> None:
    """Whoever gave it up has freed what it had in the store: another one may hold the lock."""
    with pytest.raises(Refused, match="given up"):
        waits_and_is_told(given_up=True)


@pytest.mark.parametrize(
    ("late", "told", "care"),
    [
        (0, {"beat": "an earlier one"}, KEPT),
        (TTL // 3, {}, KEPT),
        (0, {}, Care(keep=False)),  # the rest of its ttl is all that it will have
    ],
)
def test_where_a_look_tells_more_it_is_made(late: int, told: dict[str, Any], care: Care) -> None:
    """What was told is then a wake-up like any other."""
    hold, store, _, _ = waits_and_is_told(late, told, care)
    assert store.asked == [Load, Swap, Wait, Load]
    assert hold.deadline == deadline(SECOND // 2, TTL)


def test_a_look_that_comes_late_makes_the_lease_shorter() -> None:
    """What is left by the store's clock when the request left, and no more."""
    entry = Entry(free(HELD).record, 7, exactly(NOW + 4 * SECOND))
    store, attempt = Amending(entry), Attempt("k", Claim("first", "w1", "exclusive", TTL))
    attempt.sent["p1"] = -SECOND
    store.now = 7 * SECOND
    hold = play(acquire_steps(contended(), attempt, Terms(60 * SECOND), store.now), store)
    assert hold.deadline == deadline(3 * SECOND, TTL)


def test_after_a_release_to_an_heir_a_place_is_one_swap() -> None:
    """The record is as we wrote it: the heir has only looked."""
    store, knows = Amending(Entry(HELD, 2, CLOCK)), contended()
    play(apply_steps(knows, Attempt("k", Free("t", "first")), Free("t", "first"), 0), store)
    attempt = Attempt("k", Claim("again", "me", "exclusive", TTL, queue=True, patience=SECOND))
    play(apply_steps(knows, attempt, attempt.command, 0), store)
    assert store.asked == [Amend, Swap]
    assert [waiter.token for waiter in store.entry.record.queue] == ["next", "again"]


def test_a_place_that_cannot_be_swapped_is_tried_once_more() -> None:
    """A conflict shows what is there, so the second try needs no look either."""
    store, knows = Amending(Entry(HELD, 2, CLOCK)), contended()
    knows.expect("k", Entry(HELD, 1, CLOCK), 0)
    attempt = Attempt("k", Claim("again", "me", "exclusive", TTL, queue=True, patience=SECOND))
    play(apply_steps(knows, attempt, attempt.command, 0), store)
    assert store.asked == [Swap, Swap]
    assert Load not in store.asked


@pytest.mark.parametrize(
    ("first", "waits", "heir"),
    [
        (FIRST, True, ("first",)),
        (FIRST, False, ()),  # perhaps it is on another machine, perhaps dead
        (replace(FIRST, lease=None), True, ()),  # it has not left word for how long
    ],
)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("facts", [NETWORK, HOST])
def test_whom_a_release_names(
    first: Waiter, waits: bool, heir: tuple[str, ...], known: bool, facts: Facts
) -> None:
    """The first in the queue that is there when the lock is freed, if it surely waits; whether the
    key was known to be wanted by others or a conflict has shown it."""
    store = Amending(Entry(replace(HELD, queue=(first, NEXT)), 2, CLOCK))
    knows = Observations(facts, lambda token: waits and token == "first")
    knows.saw("k", store.entry, 0, 0)
    if known:
        knows.contend("k")
    else:
        knows.saw("k", Entry(HELD, 1, CLOCK), 0, 0)
    knows.expect("k", Entry(replace(HELD, queue=()), 1, CLOCK), 0)
    play(apply_steps(knows, Attempt("k", Free("t")), Free("t"), 0), store)
    assert tuple(holder.token for holder in store.entry.record.holders) == heir


def test_across_a_network_a_conflict_is_answered_by_a_swap() -> None:
    """It has shown the record, and an amend would begin with a look at it."""
    store, knows = Amending(Entry(HELD, 2, CLOCK)), Observations(NETWORK, lambda token: True)
    knows.saw("k", Entry(HELD, 1, CLOCK), 0, 0)
    knows.expect("k", Entry(replace(HELD, queue=()), 1, CLOCK), 0)
    play(apply_steps(knows, Attempt("k", Free("t")), Free("t"), 0), store)
    assert store.asked == [Swap, Swap]
    assert [holder.token for holder in store.entry.record.holders] == ["first"]
