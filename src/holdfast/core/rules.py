"""The law of the lock, as pure functions of a record.

    decide(command, record, dead, stamp) -> Decision

Rules:

 1. A party is a holder or a waiter. `dead` says which parties have run out; the dead
    count as absent, and a claim that is written sweeps them out. A write that takes a party out
    wakes the waiters that it lets in, and no other waiter.
 2. A claim may sit beside the parties before it as this table says, and the parties
    before it are the live holders *and* the waiters ahead of it in the queue. So nobody
    overtakes the queue, whether they stand in it or not, and a stream of readers cannot
    starve a writer.

        claim \\ before   none   shared   counted, same limit     exclusive
        exclusive         yes    no       no                      no
        shared            yes    yes      no                      no
        counted           yes    no       while fewer than limit  no

 3. The record's fence grows with every grant: to what the store's clock has surely reached, in
    microseconds, or else by one. So it goes on growing when the record was lost. A grant's own
    fence is larger than the record's before it, and not larger than the record's after it. An
    exclusive grant gets the first of these numbers (of the last `RANGE`): the others are its
    holder's, to pass the lock on inside of its process with a fence of its own each time.
 4. Only a live token renews, frees or offers. Freeing is by token alone.
 5. Renewing sets the expiry and never brings it closer: another party of a shared lease
    may rely on the later one. If the grant was passed on, a renewal writes down who has it now.
 6. Every command may be applied twice: the second time finds what the first one left
    (a token that holds, the token freed last) and gives the same answer. Only an eviction
    then finds nobody to evict: it names the grants that are to go, so nobody new does.
 7. The party that frees a lock may name an heir: the first in the queue, if that one wants the lock
    alone and its place says for how long. The write that frees the lock is the heir's grant, and
    the heir only has to look. The party that names the heir must know that it still waits; if it
    does not, the ttl ends the grant, as any other. The grant has the beat of the heir's place, by
    which the heir knows when it wrote that place; and the grant lasts at least as long as one that
    was written then. (The clock of a release can be older: it is read before the record is.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from holdfast.core.commands import (
    ANYONE,
    FREED,
    SHOWN,
    Blocked,
    Claim,
    Command,
    Decision,
    Evict,
    Evicted,
    Free,
    Granted,
    Mismatch,
    NotHeld,
    Offer,
    Renew,
    Stamp,
    Take,
    Wake,
)
from holdfast.core.records import (
    FORMAT,
    LARGEST_FENCE,
    RANGE,
    Holder,
    Mode,
    Record,
    Waiter,
    ended,
)

Party: TypeAlias = Holder | Waiter
Dead: TypeAlias = Callable[[Party], bool]


def nobody(party: Party) -> bool:
    """Dead-check for a record without parties: always False."""
    return False


def decide(command: Command, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    """Returns what this command does to this record."""
    return _RULES[type(command)](command, record, dead, stamp)


# --- the questions that the rules are made of ---------------------------------------------


def next_fence(record: Record, stamp: Stamp) -> int:
    """Returns how far a grant takes the record's fence, by rule 3."""
    reached = stamp.at if stamp.reached is None else stamp.reached
    return reached if reached > record.fence else record.fence + 1


def fences(mode: Mode, record: Record, stamp: Stamp) -> tuple[int, int]:
    """Returns the first and the last number of a new grant, by rule 3.

    Where the clock stands still for longer, or there is none, the range reaches beyond the time
    that the clock has surely shown, but not beyond what it can show, nor beyond the largest fence:
    the last grants have shorter ranges.
    """
    last = next_fence(record, stamp)
    if mode != "exclusive":
        return last, last
    if last - RANGE > record.fence:  # most clocks have gone on by more since the grant before
        return last - RANGE, last
    first = record.fence + 1
    most = min(stamp.at, LARGEST_FENCE) if stamp.clocked else LARGEST_FENCE
    return first, max(last, min(first + RANGE, most))


def fits_beside(claim: Claim | Waiter, before: Sequence[Party]) -> bool:
    """Whether a claim may sit beside these parties, by rule 2's table."""
    if not before:
        return True
    if claim.mode == "exclusive":
        return False
    if claim.mode == "shared":
        return all(party.mode == "shared" for party in before)
    room = claim.limit or 0  # a place that somebody else wrote may name none
    return len(before) < room and all(_counts_with(claim, party) for party in before)


def _counts_with(claim: Claim | Waiter, party: Party) -> bool:
    return party.mode == "counted" and party.limit == claim.limit


def find(parties: Sequence[Any], token: str) -> Any:
    """Returns the party with this token, or None."""
    for party in parties:
        if party.token == token:
            return party
    return None


def alive(parties: tuple[Any, ...], dead: Dead) -> tuple[Any, ...]:
    """Returns the parties that have not expired."""
    if not parties:
        return parties
    return tuple(party for party in parties if not dead(party))


def without(parties: tuple[Any, ...], token: str) -> tuple[Any, ...]:
    """Returns the parties without the one that has this token."""
    if len(parties) <= 1:
        return () if parties and parties[0].token == token else parties
    return tuple(party for party in parties if party.token != token)


def with_changed(parties: tuple[Any, ...], changed: Party) -> tuple[Any, ...]:
    """Returns the parties with this one in the place of the one that has the same token."""
    for place, party in enumerate(parties):
        if party.token == changed.token:  # the first, should another program have written two
            return (*parties[:place], changed, *parties[place + 1 :])
    return parties


def next_up(record: Record, dead: Dead) -> Wake:
    """Returns whom a freed place may let in: the first in the queue, and those who fit beside it.

    Nobody, if the first in the queue does not fit beside the holders: no other waiter may pass it.
    If a party before it is dead and not yet known to be, the timer of the waiter tells it.
    """
    queue: tuple[Waiter, ...] = alive(record.queue, dead)
    if not queue:
        return ANYONE
    before: list[Party] = list(alive(record.holders, dead))
    tokens = []
    for waiter in queue:
        if not fits_beside(waiter, before):
            break
        tokens.append(waiter.token)
        before.append(waiter)
    return tuple(tokens)


# --- the commands -------------------------------------------------------------------------


def _claim(claim: Claim, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    if not record.holders and not record.queue:
        return _grant(claim, record, (), (), stamp)
    holders: tuple[Holder, ...] = alive(record.holders, dead)
    queue: tuple[Waiter, ...] = alive(record.queue, dead)
    mine = find(holders, claim.token)
    if mine is not None:
        # An heir's numbers are those of the record: nobody was granted anything since (rule 3).
        last = record.fence if claim.inherits else 0
        return Decision(Granted(mine, without(queue, claim.token)[:SHOWN], last))
    other_limit = _other_limit(claim, holders)
    if other_limit is not None:
        return Decision(Mismatch(other_limit))
    swept = len(holders) < len(record.holders) or len(queue) < len(record.queue)
    if len(holders) < len(record.holders):
        record = _without_the_dead(record, holders, stamp)
    ahead = _ahead_of(claim.token, queue)
    if not fits_beside(claim, (*holders, *ahead)):
        decision = _wait_in_line(claim, record, holders, queue, ahead, stamp)
    else:
        decision = _grant(claim, record, holders, without(queue, claim.token), stamp)
    if swept and decision.record is not None and decision.record.queue:
        return replace(decision, wake=next_up(decision.record, nobody))
    return decision


def _without_the_dead(record: Record, holders: tuple[Holder, ...], stamp: Stamp) -> Record:
    """Returns the record with these holders alone, which remembers how the others ended."""
    dead = (holder for holder in record.holders if holder not in holders)
    history = record.remembering(*(ended(holder, "expired", stamp.at) for holder in dead))
    return replace(record, holders=holders, history=history)


def _grant(
    claim: Claim,
    record: Record,
    holders: tuple[Holder, ...],
    queue: tuple[Waiter, ...],
    stamp: Stamp,
) -> Decision:
    first, last = fences(claim.mode, record, stamp)
    holder = claim.holder(first, stamp.at, stamp.expiry(claim.ttl), stamp.beat)
    return Decision(
        Granted(holder, queue[:SHOWN], last),
        Record(last, (*holders, holder), queue, stamp.at, "", FORMAT, record.history),
    )


def _other_limit(claim: Claim, holders: tuple[Holder, ...]) -> int | None:
    if claim.mode == "counted":
        for holder in holders:  # one that another program wrote may name no limit
            if holder.mode == "counted" and holder.limit not in (None, claim.limit):
                return holder.limit
    return None


def _ahead_of(token: str, queue: tuple[Waiter, ...]) -> tuple[Waiter, ...]:
    for place, waiter in enumerate(queue):
        if waiter.token == token:
            return queue[:place]
    return queue


def _wait_in_line(
    claim: Claim,
    record: Record,
    holders: tuple[Holder, ...],
    queue: tuple[Waiter, ...],
    ahead: tuple[Waiter, ...],
    stamp: Stamp,
) -> Decision:
    more = max(0, len(ahead) - SHOWN)
    blocked = Blocked(holders, ahead[:SHOWN], claim.queue, more)
    if not claim.queue:
        return Decision(blocked)
    before = find(queue, claim.token)
    place = Waiter(
        claim.token,
        claim.owner,
        claim.mode,
        claim.patience,
        before.since if before else stamp.at,
        stamp.expiry(claim.patience),
        stamp.beat,
        claim.limit,
        claim.ttl if claim.inherits else None,
    )
    line = with_changed(queue, place) if before else (*queue, place)
    waiting = Record(record.fence, holders, line, stamp.at, "", FORMAT, record.history)
    return Decision(blocked, waiting)


def _renew(renew: Renew, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    mine: Holder | None = find(record.holders, renew.token)
    if mine is None or dead(mine):
        return Decision(NotHeld())
    expires_at = max(mine.expires_at, stamp.expiry(mine.ttl)) if stamp.clocked else 0
    renewed = replace(passed_on(mine, renew.passed_on), expires_at=expires_at, beat=stamp.beat)
    holders = (renewed,) if len(record.holders) == 1 else with_changed(record.holders, renewed)
    return Decision(
        Granted(renewed, alive(record.queue, dead)[:SHOWN]),
        Record(record.fence, holders, record.queue, stamp.at, "", FORMAT, record.history),
    )


def passed_on(mine: Holder, lease: Holder | None) -> Holder:
    """Returns a grant as it is after it was passed on: with the fence, the owner and the note of
    the latest lease. A renewal that only knows of an earlier lease changes none of these."""
    if lease is None or lease.fence <= mine.fence:
        return mine
    return replace(mine, fence=lease.fence, owner=lease.owner, note=lease.note)


def _free(free: Free, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    holders = without(record.holders, free.token)
    queue = without(record.queue, free.token) if record.queue else record.queue
    if len(holders) == len(record.holders) and len(queue) == len(record.queue):
        return Decision(FREED if record.freed == free.token else NotHeld())
    freed = Record(record.fence, holders, queue, stamp.at, free.token, FORMAT, record.history)
    if free.heir and record.holders and not holders:
        bequeathed = _bequeathed(free.heir, freed, dead, stamp)
        if bequeathed is not None:
            return Decision(FREED, bequeathed, (free.heir,))
    return Decision(FREED, freed, next_up(freed, dead))


def _bequeathed(heir: str, freed: Record, dead: Dead, stamp: Stamp) -> Record | None:
    """Returns a free record with the first in its queue as the holder, by rule 7; None if this is
    not the heir, or its place does not allow another party to grant it the lock."""
    first = freed.queue[0] if freed.queue else None
    if first is None or first.token != heir or first.mode != "exclusive":
        return None
    # A place that may have run out by now gets nothing, also if an older clock says that it lives.
    if first.lease is None or dead(first) or not stamp.clocked or stamp.at > first.expires_at:
        return None
    fence, last = fences("exclusive", freed, stamp)
    if last > LARGEST_FENCE:
        return None
    placed_at = first.expires_at - first.ttl
    ends_at = max(stamp.at, placed_at) + first.lease
    holder = Holder(
        heir, fence, first.owner, "exclusive", first.lease, stamp.at, ends_at, first.beat
    )
    return replace(freed, fence=last, holders=(holder,), queue=freed.queue[1:])


def _offer(offer: Offer, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    offered: Holder | None = find(record.holders, offer.ticket)
    if offered is not None:
        return Decision(Granted(offered))
    mine: Holder | None = find(record.holders, offer.token)
    if mine is None or dead(mine):
        return Decision(NotHeld())
    offered = replace(
        mine,
        token=offer.ticket,
        ttl=offer.ttl,
        expires_at=stamp.expiry(offer.ttl),
        beat=stamp.beat,
        offered=True,
    )
    holders = (*without(record.holders, offer.token), offered)
    left = Record(record.fence, holders, record.queue, stamp.at, "", FORMAT, record.history)
    return Decision(Granted(offered), left)


def _take(take: Take, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    mine: Holder | None = find(record.holders, take.token)
    if mine is not None and not dead(mine):
        return Decision(Granted(mine, alive(record.queue, dead)[:SHOWN]))
    offered: Holder | None = find(record.holders, take.ticket)
    if offered is None or not offered.offered or dead(offered):
        return Decision(NotHeld())
    fence = next_fence(record, stamp)
    taken = Holder(
        take.token,
        fence,
        take.owner,
        offered.mode,
        take.ttl,
        stamp.at,
        stamp.expiry(take.ttl),
        stamp.beat,
        offered.limit,
        offered.note if take.note is None else take.note,
    )
    holders = (*without(record.holders, take.ticket), taken)
    history = record.remembering(ended(offered, "handed over", stamp.at, take.owner))
    return Decision(
        Granted(taken, alive(record.queue, dead)[:SHOWN]),
        Record(fence, holders, record.queue, stamp.at, "", FORMAT, history),
    )


def _evict(evict: Evict, record: Record, dead: Dead, stamp: Stamp) -> Decision:
    out = tuple(h for h in record.holders if h.fence in evict.fences)
    queue = tuple(waiter for waiter in record.queue if waiter.token not in evict.waiters)
    if not out and len(queue) == len(record.queue):
        return Decision(Evicted(()))
    holders = tuple(h for h in record.holders if h not in out)
    history = record.remembering(
        *(ended(h, "evicted", stamp.at, evict.operator, evict.reason) for h in out)
    )
    fence = next_fence(record, stamp) if out else record.fence
    left = Record(fence, holders, queue, stamp.at, "", FORMAT, history)
    return Decision(Evicted(out), left, next_up(left, dead))


_RULES: dict[type, Callable[[Any, Record, Dead, Stamp], Decision]] = {
    Claim: _claim,
    Renew: _renew,
    Free: _free,
    Offer: _offer,
    Take: _take,
    Evict: _evict,
}
