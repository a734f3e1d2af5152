"""Properties of the law of the lock, over random runs of commands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.commands import (
    ANYONE,
    NOBODY,
    SHOWN,
    Blocked,
    Claim,
    Command,
    Decision,
    Evict,
    Evicted,
    Free,
    Freed,
    Granted,
    Mismatch,
    NotHeld,
    Offer,
    Renew,
    Stamp,
    Take,
)
from holdfast.core.records import (
    EMPTY,
    LARGEST_FENCE,
    RANGE,
    Holder,
    Record,
    Waiter,
    decode,
    encode,
)
from holdfast.core.rules import Party, decide, fits_beside, next_up, nobody

TTL = 1000
TOKENS = [f"t{i}" for i in range(6)]
TAKERS = ["taker0", "taker1"]  # whoever takes draws a token that was never in line
TICKETS = ["ticket0", "ticket1"]

tokens = st.sampled_from(TOKENS)
holding = st.sampled_from(TOKENS + TAKERS)
claims = st.one_of(
    st.builds(
        lambda token, mode, queue: Claim(token, "o", mode, TTL, queue=queue, patience=TTL),
        tokens, st.sampled_from(["exclusive", "shared"]), st.booleans(),
    ),
    st.builds(
        lambda token, limit, queue: Claim(token, "o", "counted", TTL, limit, {}, queue, TTL),
        tokens, st.sampled_from([2, 2, 2, 3]), st.booleans(),
    ),
)  # fmt: skip
others: st.SearchStrategy[Command] = st.one_of(
    st.builds(Renew, holding),
    st.builds(Free, holding),
    st.builds(Offer, holding, st.sampled_from(TICKETS), st.just(TTL)),
    st.builds(Take, st.sampled_from(TICKETS), st.sampled_from(TAKERS), st.just("o"), st.just(TTL)),
    st.builds(Evict, st.lists(st.integers(1, 50), max_size=40).map(tuple)),
)
# A run: commands, and how much time passes before each.
runs = st.lists(st.tuples(claims | others, st.sampled_from([0, 0, 1, 100, 600, 1500])), max_size=40)


class Lock:
    """A lock on a store with a clock, where commands are carried out one after the other."""

    def __init__(self, *, clocked: bool = True) -> None:
        self.record = EMPTY
        self.at = 1
        self.beats = 0
        self.clocked = clocked

    def dead(self, party: Party) -> bool:
        """By the clock."""
        return bool(party.expires_at) and self.at > party.expires_at

    def decide(self, command: Command) -> Decision:
        """What the rules say now."""
        self.beats += 1
        return decide(
            command, self.record, self.dead, Stamp(self.at, f"b{self.beats}", self.clocked)
        )

    def do(self, command: Command) -> Any:
        """Carry it out."""
        decision = self.decide(command)
        if decision.record is not None:
            self.record = decision.record
        return decision.verdict

    def live(self) -> list[Holder]:
        """Who holds."""
        return [holder for holder in self.record.holders if not self.dead(holder)]

    def waiting(self) -> list[Waiter]:
        """Who waits."""
        return [waiter for waiter in self.record.queue if not self.dead(waiter)]


def compatible(holders: list[Holder]) -> bool:
    """Whether all of these may hold at once. Written down again, independent of the rules."""
    if len(holders) <= 1:
        return True
    modes = {holder.mode for holder in holders}
    if modes == {"shared"}:
        return True
    limits = {holder.limit for holder in holders}
    return modes == {"counted"} and len(limits) == 1 and len(holders) <= min(limits)  # type: ignore[type-var,operator]


def played(run: list[tuple[Command, int]]) -> list[tuple[Lock, Command, Record, Any]]:
    """Carry out a run; for every command the lock after it, the record before, the verdict."""
    lock, history = Lock(), []
    for command, passes in run:
        lock.at += passes
        before = lock.record
        verdict = lock.do(command)
        after = Lock()
        after.record, after.at = lock.record, lock.at
        history.append((after, command, before, verdict))
    return history


@given(runs)
@settings(max_examples=300)
def test_never_two_incompatible_holders(run: list[tuple[Command, int]]) -> None:
    """Whatever is asked for, those who live and hold may hold together; tokens are unique."""
    for lock, _, _, _ in played(run):
        assert compatible(lock.live())
        names = [h.token for h in lock.live()] + [w.token for w in lock.waiting()]
        assert len(set(names)) == len(names)


@given(runs)
def test_fences_strictly_grow(run: list[tuple[Command, int]]) -> None:
    """Every new grant has a fence above all before it; the record's never sinks."""
    last, seen = 0, set[tuple[str, int]]()
    for lock, command, before, verdict in played(run):
        assert lock.record.fence >= before.fence
        if isinstance(verdict, Granted) and isinstance(command, (Claim, Take)):
            grant = verdict.holder.token, verdict.holder.fence
            if grant not in seen:
                assert verdict.holder.fence > last
                assert verdict.holder.fence <= lock.record.fence
                assert verdict.last in (0, lock.record.fence)
            seen.add(grant)
        last = max(last, lock.record.fence)
        assert all(holder.fence <= lock.record.fence for holder in lock.record.holders)


@given(runs, st.integers(RANGE + 2, 10**15))
def test_fence_grows_after_the_record_is_lost(run: list[tuple[Command, int]], gap: int) -> None:
    """A dropped record's lock goes on above all its fences a millisecond later, because the clock
    is its floor."""
    history = played(run)
    if not history:
        return
    lock, last = history[-1][0], history[-1][0].record.fence
    lock.at = max(lock.at, last) + gap
    lock.record = EMPTY
    granted = lock.do(Claim("new", "o", "exclusive", TTL))
    assert granted.holder.fence > last


@pytest.mark.parametrize("reached", [10_000_000, None])
@pytest.mark.parametrize("fence", [0, 10**9])
def test_a_fence_is_not_ahead_of_the_clock(reached: int | None, fence: int) -> None:
    """It starts at what the clock has surely shown, not at what it may show: if the record were
    lost, the next one could be smaller. Only after a larger one it is larger still."""
    stamp = Stamp(15_000_000, "b", True, reached)
    floor = 15_000_000 if reached is None else reached
    offered = Holder("ticket", fence, "o", "exclusive", TTL, 0, 90_000_000, "b", offered=True)
    commands: list[tuple[Command, Record]] = [
        (Claim("t", "o", "exclusive", TTL), Record(fence)),
        (Take("ticket", "t", "o", TTL), Record(fence, (offered,))),
        (Evict((fence,)), Record(fence, (offered,))),
    ]
    for command, before in commands:
        after = decide(command, before, lambda party: False, stamp).record
        assert after is not None
        assert after.fence == (fence + 1 if fence else floor)


@pytest.mark.parametrize("clocked", [True, False])
@pytest.mark.parametrize("left", [1, 2, RANGE, RANGE + 1, RANGE + 2])
def test_a_range_ends_at_the_largest_fence(clocked: bool, left: int) -> None:
    """While there is a number left, it can be granted; a range takes no more than there are."""
    before = Record(LARGEST_FENCE - left)
    stamp = Stamp(10_000_000, "b", clocked)
    after = decide(Claim("t", "o", "exclusive", TTL), before, nobody, stamp).record
    assert after is not None
    assert after.holders[0].fence == before.fence + 1
    whole = min(before.fence + 1 + RANGE, LARGEST_FENCE)
    assert after.fence == (before.fence + 1 if clocked else whole)


def test_no_grant_ends_before_it_began() -> None:
    """Whoever notices the end may have a closer bound of the store's time than the holder had."""
    gone = Holder("gone", 1, "o", "shared", TTL, 700, 1_700, "b")
    offered = Holder("ticket", 2, "o", "shared", TTL, 700, 1_700, "b", offered=True)
    commands: list[tuple[Command, Holder]] = [
        (Claim("t", "o", "exclusive", TTL), gone),
        (Evict((1,)), gone),
        (Take("ticket", "t", "o", TTL), offered),
    ]
    for command, holder in commands:
        for at, noticed in ((500, 700), (900, 900)):
            stamp = Stamp(at, "b")
            after = decide(command, Record(2, (holder,)), lambda one: one is gone, stamp).record
            assert after is not None
            assert after.history
            assert [(one.since, one.at) for one in after.history] == [(700, noticed)]


@given(runs)
def test_a_grant_sweeps_the_dead(run: list[tuple[Command, int]]) -> None:
    """After a claim was let in or put in line, nobody dead is left in the record."""
    for lock, command, before, verdict in played(run):
        wrote = lock.record is not before
        if isinstance(command, Claim) and wrote and isinstance(verdict, (Granted, Blocked)):
            assert list(lock.record.holders) == lock.live()
            assert list(lock.record.queue) == lock.waiting()


EXCLUSIVE, SHARED, OF_TWO, OF_THREE = (
    ("exclusive", None), ("shared", None), ("counted", 2), ("counted", 3),
)  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "before", "fits"),
    [
        (EXCLUSIVE, [], True),
        (EXCLUSIVE, [SHARED], False),
        (EXCLUSIVE, [OF_TWO], False),
        (EXCLUSIVE, [EXCLUSIVE], False),
        (SHARED, [], True),
        (SHARED, [SHARED, SHARED], True),
        (SHARED, [SHARED, EXCLUSIVE], False),
        (SHARED, [SHARED, OF_TWO], False),
        (OF_TWO, [], True),
        (OF_TWO, [OF_TWO], True),
        (OF_TWO, [OF_TWO, OF_TWO], False),
        (OF_TWO, [SHARED], False),
        (OF_THREE, [OF_THREE, OF_THREE], True),
        (OF_THREE, [OF_TWO], False),
        (OF_THREE, [OF_THREE, OF_TWO], False),
        (OF_THREE, [OF_THREE, EXCLUSIVE], False),
        (OF_THREE, [EXCLUSIVE, OF_THREE], False),
    ],
)
def test_who_may_sit_beside_whom(claim: Any, before: list[Any], fits: bool) -> None:
    """The table, written down again; where one of those before is in the way, all are."""
    parties = [
        Waiter(f"w{n}", "o", m, TTL, 0, TTL, "b", limit) for n, (m, limit) in enumerate(before)
    ]
    asked = Claim("t", "o", claim[0], TTL, claim[1])
    assert fits_beside(asked, parties) is fits


@pytest.mark.parametrize(("ahead", "claim"), [(EXCLUSIVE, OF_THREE), (OF_TWO, OF_THREE)])
def test_a_counted_claim_does_not_overtake_another_kind(ahead: Any, claim: Any) -> None:
    """There are permits left, but somebody waits who cannot share them."""
    waiter = Waiter("first", "o", ahead[0], TTL, 0, TTL, "b", ahead[1])
    for holders in ((), (Holder("h", 1, "o", "counted", TTL, 0, TTL, "b", 3),)):
        lock = Lock()
        lock.record = Record(1, holders, (waiter,))
        assert isinstance(lock.do(Claim("second", "o", claim[0], TTL, claim[1])), Blocked)


@given(runs)
def test_nobody_overtakes(run: list[tuple[Command, int]]) -> None:
    """A claim is let in only if it could share the lock with everyone alive ahead of it."""
    for lock, command, before, verdict in played(run):
        if not isinstance(command, Claim) or not isinstance(verdict, Granted):
            continue
        then = Lock()
        then.record, then.at = before, lock.at
        if any(holder.token == command.token for holder in then.live()):
            continue
        line = [waiter.token for waiter in then.waiting()]
        place = line.index(command.token) if command.token in line else len(line)
        for ahead in then.waiting()[:place]:
            assert fits_beside(command, [ahead])
        left = [waiter.token for waiter in lock.waiting()]
        assert left == [token for token in line if token != command.token]


@given(runs)
def test_the_line_keeps_its_order(run: list[tuple[Command, int]]) -> None:
    """Nobody in the queue changes places; the new ones come last, and `since` stays."""
    for lock, _, before, _ in played(run):
        then = Lock()
        then.record, then.at = before, lock.at
        old = {waiter.token: waiter.since for waiter in then.waiting()}
        now = {waiter.token: waiter.since for waiter in lock.waiting()}
        stayed = [token for token in old if token in now]
        assert list(now)[: len(stayed)] == stayed
        assert all(now[token] == old[token] for token in stayed)


@given(st.lists(st.sampled_from(["t0", "t1", "t2"]), min_size=1, max_size=20))
def test_readers_cannot_starve_a_writer(readers: list[str]) -> None:
    """However many readers come and go behind a queued writer, it is in after the first ones."""
    lock = Lock()
    lock.do(Claim("first", "o", "shared", TTL))
    assert isinstance(
        lock.do(Claim("writer", "o", "exclusive", TTL, queue=True, patience=TTL)), Blocked
    )
    for reader in readers:
        for queue in (False, True):
            claim = Claim(reader, "o", "shared", TTL, queue=queue, patience=TTL)
            assert isinstance(lock.do(claim), Blocked)
    assert isinstance(lock.do(Free("first")), Freed)
    assert isinstance(lock.do(Claim("writer", "o", "exclusive", TTL)), Granted)


@given(runs)
def test_everybody_gets_in_at_last(run: list[tuple[Command, int]]) -> None:
    """When all holders go and those in line keep asking, the whole line gets in, in turns."""
    history = played(run)
    if not history:
        return
    lock = history[-1][0]
    waiting = {waiter.token: waiter for waiter in lock.waiting()}
    for _ in range(len(waiting) + 1):
        for holder in lock.live():
            lock.do(Free(holder.token))
        for token, waiter in list(waiting.items()):
            verdict = lock.do(Claim(token, "o", waiter.mode, TTL, waiter.limit, {}, True, TTL))
            if isinstance(verdict, Granted):
                del waiting[token]
            else:
                assert isinstance(verdict, (Blocked, Mismatch))
    assert waiting == {}


@given(runs)
def test_twice_is_once(run: list[tuple[Command, int]]) -> None:
    """A command that is applied twice gives the same answer and the same record, apart from
    what is new with every write. (An eviction, the second time, finds nobody to evict.)"""
    lock = Lock()
    for command, passes in run:
        lock.at += passes
        first = lock.do(command)
        once = lock.record
        again = lock.decide(command)
        if isinstance(command, Evict):
            assert again.verdict == Evicted(())
            assert again.record is None
            continue
        assert plain(again.verdict) == plain(first)
        if again.record is not None:
            assert plain_record(again.record) == plain_record(once)


def plain(verdict: Any) -> Any:
    """A verdict without beats and expiries."""
    if isinstance(verdict, Granted):
        wanted = tuple(_plain(waiter) for waiter in verdict.wanted)
        return Granted(_plain(verdict.holder), wanted)
    if isinstance(verdict, Blocked):
        return Blocked(
            tuple(_plain(holder) for holder in verdict.holders),
            tuple(_plain(waiter) for waiter in verdict.ahead),
            verdict.queued,
        )
    return verdict


def plain_record(record: Record) -> Record:
    """A record without beats and expiries."""
    holders = tuple(_plain(holder) for holder in record.holders)
    return replace(record, holders=holders, queue=tuple(_plain(w) for w in record.queue))


def _plain(party: Any) -> Any:
    return replace(party, beat="", expires_at=0)


@given(runs, st.integers(0, 2000))
def test_renewing_never_shortens(run: list[tuple[Command, int]], back: int) -> None:
    """A renewal never brings an expiry closer, though its stamp be older than the last."""
    for lock, _, _, _ in played(run):
        for holder in lock.live():
            lock.at = max(1, lock.at - back)
            verdict = lock.do(Renew(holder.token))
            assert isinstance(verdict, Granted)
            assert verdict.holder.expires_at >= holder.expires_at
            assert verdict.holder.fence == holder.fence


@given(runs, st.text("xyz", min_size=1, max_size=3))
def test_only_the_token_frees(run: list[tuple[Command, int]], stranger: str) -> None:
    """Whoever does not know a token changes nothing: not by renewing, freeing or offering."""
    for lock, _, _, _ in played(run):
        foreign: tuple[Command, ...] = (
            Renew(stranger), Free(stranger), Offer(stranger, "z" * 9, TTL),
            Take(stranger, "z" * 9, "o", TTL),
        )  # fmt: skip
        for command in foreign:
            decision = lock.decide(command)
            assert isinstance(decision.verdict, NotHeld)
            assert decision.record is None


@given(runs)
def test_freeing_takes_out_only_its_own(run: list[tuple[Command, int]]) -> None:
    """A release leaves every other party exactly as it was."""
    for lock, command, before, _ in played(run):
        if isinstance(command, (Free, Renew)):
            for old, new in (
                (before.holders, lock.record.holders),
                (before.queue, lock.record.queue),
            ):
                rest = [party for party in old if party.token != command.token]
                assert [party for party in new if party.token != command.token] == rest


@given(runs)
def test_a_dead_token_stays_dead(run: list[tuple[Command, int]]) -> None:
    """Nobody renews or offers what has run out."""
    for lock, _, _, _ in played(run):
        for holder in lock.record.holders:
            if lock.dead(holder):
                assert isinstance(lock.decide(Renew(holder.token)).verdict, NotHeld)
                ticket = "another"
                assert isinstance(lock.decide(Offer(holder.token, ticket, TTL)).verdict, NotHeld)


def test_a_grant_is_offered_and_taken() -> None:
    """The ticket stands for the grant until somebody brings it, who gets a fence of its own."""
    lock = Lock()
    held = lock.do(Claim("a", "o", "counted", TTL, 3)).holder
    lock.do(Claim("b", "o", "counted", TTL, 3))
    lock.at += 10
    offered = lock.do(Offer("a", "ticket", 5 * TTL)).holder
    assert offered.offered
    assert (offered.fence, offered.expires_at) == (held.fence, lock.at + 5 * TTL)
    assert {holder.token for holder in lock.live()} == {"b", "ticket"}
    taken = lock.do(Take("ticket", "c", "next", TTL)).holder
    assert not taken.offered
    assert (taken.owner, taken.mode, taken.limit) == ("next", "counted", 3)
    assert taken.fence == lock.record.fence > held.fence + 1
    assert {holder.token for holder in lock.live()} == {"b", "c"}


def test_only_what_is_offered_is_taken() -> None:
    """A token is no ticket, though it be known."""
    lock = Lock()
    lock.do(Claim("a", "o", "exclusive", TTL))
    assert isinstance(lock.do(Take("a", "b", "o", TTL)), NotHeld)


def test_a_ticket_that_ran_out_is_not_taken() -> None:
    """Nor is it any use that it was taken once, if that has run out as well."""
    lock = Lock()
    lock.do(Claim("a", "o", "exclusive", TTL))
    lock.do(Offer("a", "ticket", TTL))
    late = lock.at + TTL + 1
    lock.at, in_time = late, lock.at
    assert isinstance(lock.do(Take("ticket", "b", "o", TTL)), NotHeld)
    lock.at = in_time
    assert isinstance(lock.do(Take("ticket", "b", "o", TTL)), Granted)
    lock.at = late
    assert isinstance(lock.do(Take("ticket", "b", "o", TTL)), NotHeld)


@given(runs)
def test_an_offer_is_taken_once(run: list[tuple[Command, int]]) -> None:
    """A ticket gives one party a larger fence, and the next one nothing."""
    for lock, _, _, _ in played(run):
        for holder in lock.live():
            if not holder.offered:
                continue
            taken = lock.do(Take(holder.token, "taker", "o", TTL))
            assert isinstance(taken, Granted)
            assert taken.holder.fence > holder.fence
            assert (taken.holder.mode, taken.holder.limit) == (holder.mode, holder.limit)
            assert isinstance(lock.do(Take(holder.token, "late", "o", TTL)), NotHeld)
            break


@given(runs)
def test_without_a_clock_no_expiry_is_written(run: list[tuple[Command, int]]) -> None:
    """Whoever writes without a reading of the store's clock writes an expiry of 0."""
    lock = Lock(clocked=False)
    for command, _ in run:
        lock.do(command)
        parties: tuple[Party, ...] = (*lock.record.holders, *lock.record.queue)
        assert all(party.expires_at == 0 for party in parties)


def test_a_renewal_without_a_clock_takes_the_expiry_back() -> None:
    """The one that was written with a clock would be past though the holder lives."""
    lock = Lock()
    assert lock.do(Claim("a", "o", "exclusive", TTL)).holder.expires_at
    lock.clocked = False
    assert lock.do(Renew("a")).holder.expires_at == 0


@given(runs)
def test_next_up_names_those_who_would_be_let_in(run: list[tuple[Command, int]]) -> None:
    """The woken ones are exactly those let in: the dead ahead of them are in nobody's way."""
    for lock, _, _, _ in played(run):
        named = next_up(lock.record, lock.dead)
        waiting, let_in = lock.waiting(), []
        for waiter in waiting:
            claim = Claim(waiter.token, "o", waiter.mode, TTL, waiter.limit)
            if isinstance(lock.do(claim), Granted):
                let_in.append(waiter.token)
        assert named == (tuple(let_in) if waiting else ANYONE)


@given(runs)
def test_nobody_is_woken_in_vain(run: list[tuple[Command, int]]) -> None:
    """Of those in line only who is let in is woken: a crowd does not come for nothing."""
    for lock, command, before, _ in played(run):
        wake = decide(command, before, lock.dead, Stamp(lock.at, "b")).wake
        if lock.waiting():
            assert wake != ANYONE


def test_a_dead_head_of_the_queue_is_passed_over() -> None:
    """A wake-up goes to the first that lives, not to the place of somebody who was killed."""
    lock = Lock()
    lock.do(Claim("holder", "o", "exclusive", 9 * TTL))
    for token, patience in (("killed", TTL), ("alive", 9 * TTL), ("next", 9 * TTL)):
        lock.do(Claim(token, "o", "exclusive", TTL, queue=True, patience=patience))
    assert lock.decide(Free("holder")).wake == ("killed",)
    lock.at += TTL + 1
    assert lock.decide(Free("holder")).wake == ("alive",)


@given(runs)
def test_writes_that_free_say_whom_to_wake(run: list[tuple[Command, int]]) -> None:
    """Whatever takes a party out of the record wakes whom it lets in; nothing else needs to."""
    for lock, command, before, _ in played(run):
        again = decide(command, before, lock.dead, Stamp(lock.at, "b"))
        if again.record is None:
            continue
        old: tuple[Party, ...] = (*before.holders, *before.queue)
        new: tuple[Party, ...] = (*again.record.holders, *again.record.queue)
        gone = {p.token for p in old if not lock.dead(p)} - {p.token for p in new}
        if gone and isinstance(command, (Free, Evict)):
            assert again.wake == next_up(again.record, lock.dead)


@given(runs)
@settings(max_examples=300)
def test_who_sweeps_out_the_dead_wakes_whom_that_lets_in(run: list[tuple[Command, int]]) -> None:
    """A claim that finds somebody dead may not be the first in line, who has not seen it yet."""
    for lock, command, before, _ in played(run):
        again = decide(command, before, lock.dead, Stamp(lock.at, "b"))
        parties: tuple[Party, ...] = (*before.holders, *before.queue)
        if isinstance(command, Claim) and again.record is not None and again.record.queue:
            swept = any(lock.dead(party) for party in parties)
            assert again.wake == (next_up(again.record, lock.dead) if swept else NOBODY)


def test_a_waiter_far_back_that_finds_the_holder_dead_calls_the_first() -> None:
    """The first in line need not wait for its own look."""
    lock = Lock()
    lock.do(Claim("killed", "o", "exclusive", TTL))
    for token in ("first", "second"):
        lock.do(Claim(token, "o", "exclusive", TTL, queue=True, patience=9 * TTL))
    lock.at += TTL + 1
    look = Claim("second", "o", "exclusive", TTL, queue=True, patience=9 * TTL)
    assert lock.decide(look).wake == ("first",)


def test_who_finds_the_first_in_line_dead_calls_the_next() -> None:
    """Nobody may have been before it but a waiter who was killed."""
    lock = Lock()
    lock.do(Claim("reader", "o", "shared", 9 * TTL))
    lock.do(Claim("killed", "o", "exclusive", TTL, queue=True, patience=TTL))
    lock.do(Claim("next", "o", "shared", TTL, queue=True, patience=9 * TTL))
    lock.at += TTL + 1
    look = Claim("last", "o", "exclusive", TTL, queue=True, patience=9 * TTL)
    assert lock.decide(look).wake == ("next",)


@pytest.mark.parametrize("ahead", [0, SHOWN, SHOWN + 1, 3 * SHOWN])
def test_a_long_queue_is_shown_in_part_and_counted_whole(ahead: int) -> None:
    """Whoever waits knows its place by it."""
    lock = Lock()
    lock.do(Claim("holder", "o", "exclusive", TTL))
    for number in range(ahead):
        lock.do(Claim(f"w{number}", "o", "exclusive", TTL, queue=True, patience=TTL))
    blocked = lock.do(Claim("t", "o", "exclusive", TTL))
    assert blocked.places() == ahead
    assert [waiter.token for waiter in blocked.ahead] == [f"w{n}" for n in range(min(ahead, SHOWN))]
    assert len(lock.do(Renew("holder")).wanted) == min(ahead, SHOWN)


@given(runs)
def test_every_record_can_be_stored(run: list[tuple[Command, int]]) -> None:
    """Whatever the rules write can be written and read back."""
    for lock, _, _, _ in played(run):
        assert decode(encode(lock.record)) == lock.record


def test_another_limit_is_a_mistake() -> None:
    """A counted claim beside holders who count to another limit is told so."""
    lock = Lock()
    lock.do(Claim("a", "o", "counted", TTL, 3))
    assert lock.do(Claim("b", "o", "counted", TTL, 4)) == Mismatch(3)
    lock.at += TTL + 1
    lock.at += 1
    assert isinstance(lock.do(Claim("b", "o", "counted", TTL, 4)), Granted)


def test_places_without_a_limit() -> None:
    """Somebody else may have written counted places that name no limit: nobody's release fails
    for them, and only the first is let in."""
    queue = tuple(Waiter(token, "o", "counted", TTL, 1, TTL, "b") for token in "ab")
    lock = Lock()
    lock.do(Claim("mine", "o", "exclusive", TTL))
    lock.record = replace(lock.record, queue=queue)
    decision = lock.decide(Free("mine"))
    assert isinstance(decision.verdict, Freed)
    assert decision.wake == ("a",)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_counted_up_to_the_limit(limit: int) -> None:
    """As many get in as there are permits."""
    lock = Lock()
    verdicts = [lock.do(Claim(f"c{i}", "o", "counted", TTL, limit)) for i in range(limit + 2)]
    assert [type(verdict) for verdict in verdicts] == [Granted] * limit + [Blocked] * 2
    assert isinstance(lock.do(Claim("x", "o", "exclusive", TTL)), Blocked)
    assert isinstance(lock.do(Claim("r", "o", "shared", TTL)), Blocked)


@given(runs, runs)
def test_an_eviction_that_comes_again_evicts_nobody_new(
    run: list[tuple[Command, int]], later: list[tuple[Command, int]]
) -> None:
    """Whoever came after it was given stays, though it be delayed, repeated or both."""
    history = played(run)
    if not history:
        return
    lock = history[-1][0]
    evict = Evict(tuple(holder.fence for holder in lock.record.holders))
    known = lock.record.fence
    for command, passes in later:
        lock.at += passes
        lock.do(command)
        before = lock.record.holders
        assert all(holder.fence <= known for holder in lock.do(evict).holders)
        assert lock.record.holders == tuple(h for h in before if h.fence > known)


def test_eviction_bumps_the_fence() -> None:
    """Evicting somebody raises the fence; evicting nobody changes nothing."""
    lock = Lock()
    holder = lock.do(Claim("a", "o", "shared", TTL)).holder
    lock.do(Claim("b", "o", "shared", TTL))
    assert lock.decide(Evict((10**9,))).record is None
    evicted = lock.do(Evict((holder.fence,)))
    assert [h.token for h in evicted.holders] == ["a"]
    assert lock.record.fence > holder.fence + 1
    assert [h.token for h in lock.live()] == ["b"]
