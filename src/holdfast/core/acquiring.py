"""Acquire: claim a lock, wait for the turn, time out; and several keys, all or none.

1. A claim is tried at once. If it must wait, it waits until the store says that the key
   may have changed for it, or until a party before it may have expired.
2. After a moment it takes a place in the queue, and renews the place while it waits
   (`fair=True`: at the first try, `fair=False`: never). Where the store runs the rules, a place
   costs no more than a refusal: there it is taken at the first try, so that waiters do not
   compete for a freed lock. Where the store amends, a place is taken after the first refusal,
   because it makes nobody else's write fail. Elsewhere it would.
3. A client that has just had a lock that others wanted too steps back for a moment before it
   claims the lock again, where the others can only poll for it.
4. The party that frees a lock may grant it to the first in the queue with the same write (rule 7 of
   `rules`). It names that one as its heir, if the heir surely still waits. The wake-up may bring
   the grant along (`Inherited`); then the heir need not look. A grant that was brought counts only
   if it names the latest write of the heir's place: then that place was granted the lock, and only
   what can end any lease can have ended the grant since. Its deadline counts from when that write
   was sent.
5. Several keys are claimed in one fixed order, the order of their bytes, so that two parties
   never wait for each other. Leases that are already granted are kept alive meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.commands import Blocked, Claim, Free, Granted, Mismatch
from holdfast.core.contract import Entry, Facts, Inherited
from holdfast.core.effects import NOW, Draw, Emit, Keep, Sleep, Steps
from holdfast.core.events import Waiting
from holdfast.core.holds import BEATS_PER_TTL, Attempt, Care, Hold, hold_of
from holdfast.core.observations import Observations, View
from holdfast.core.records import SECOND, Holder, Micros, Mode, Note
from holdfast.core.steps import BEAT_BYTES, TOKEN_BYTES, apply_steps
from holdfast.core.waiting import LONG_WAIT, REQUEST_TIMEOUT, BoundedWait, answers_by
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    LimitMismatch,
    Misconfigured,
    OutcomeUnknown,
    Refused,
    Unavailable,
)

# A claim that has waited this long takes a place in the queue (unless told otherwise).
ANNOUNCE_AFTER: Micros = 1_500_000
# A place in the queue lasts this long without a sign of life.
QUEUE_PLACE_TTL: Micros = 10 * SECOND
# And longer the further back it is: a dead waiter blocks nobody back there, and renewing a long
# queue keeps the store busy.
TTL_PER_PLACE_AHEAD: Micros = SECOND // 20
# Where renewing a place is cheap (`Facts.cheap_places`), the first few places are short: a waiter
# that dies at the head of the queue keeps a free lock from the others for so long.
FRONT_PLACE_TTL: Micros = 3 * SECOND
FRONT_TTL_PER_PLACE_AHEAD: Micros = SECOND // 2
# But no place outlives its call's timeout by more than this: of a crowd that gives up at the same
# moment, and then ends, not everybody gets to free its place.
PLACE_OUTLIVES: Micros = SECOND
# A claim is tried again this often even without a notification: in the queue, and outside.
LOOK_AGAIN: Micros = 30 * SECOND
LOOK_AGAIN_UNQUEUED: Micros = 1 * SECOND
# When a party expires, each place further back in the queue tries a little later, so that a
# thousand waiters do not come at once for what only the first of them can get.
PACE: Micros = 2000
SLOWEST_PACE: Micros = 2 * SECOND


class Terms(Struct, frozen=True, gc=False):
    """How long a claim waits, whether it queues, and how its lease is kept."""

    timeout: Micros | None = None  # None: as long as it takes; 0: do not wait
    fair: bool | None = None
    store_patience: Micros | None = 60 * SECOND  # how long the store may be in trouble
    care: Care = Care()
    request_timeout: Micros = REQUEST_TIMEOUT
    long_wait: Micros | None = LONG_WAIT


def place_ttl_for(ttl: Micros, ahead: int, cheap: bool) -> Micros:
    """Returns how long a place in the queue lasts with so many ahead of it."""
    place_ttl = QUEUE_PLACE_TTL + ahead * TTL_PER_PLACE_AHEAD
    if cheap:
        place_ttl = min(place_ttl, FRONT_PLACE_TTL + ahead * FRONT_TTL_PER_PLACE_AHEAD)
    return min(ttl, place_ttl)


def may_inherit(mode: Mode, note: Note) -> bool:
    """Whether the party that frees a lock may grant it to this claim's place in the queue. A place
    says little of its claim, because a queue may be long: enough for an exclusive one without a
    note."""
    return mode == "exclusive" and not note


class _Wait(BoundedWait, kw_only=True, gc=False):
    """The state of a claim that was not granted at once."""

    attempt: Attempt
    fair: bool | None
    facts: Facts

    @property
    def claim(self) -> Claim:
        return self.attempt.command  # type: ignore[return-value]

    def get_in_line(self, now: Micros, ahead: int = 0) -> None:
        """From now on the claim asks for a place in the queue, unless it is not to queue.
        `ahead` is how many waiters were before it at the last try."""
        if self.may_queue:
            patience = place_ttl_for(self.claim.ttl, ahead, self.facts.cheap_places)
            if self.ends_at is not None:
                patience = min(patience, max(0, self.ends_at - now) + PLACE_OUTLIVES)
            inherits = self.facts.cheap_places and may_inherit(self.claim.mode, self.claim.note)
            self.attempt.command = replace(
                self.claim, queue=True, patience=patience, inherits=inherits
            )

    @property
    def may_queue(self) -> bool:
        """Whether the claim may take a place in the queue."""
        return self.fair is not False and self.timeout != 0

    @property
    def queues_when_refused(self) -> bool:
        """Whether the claim takes a place right after its first refusal."""
        return self.facts.amends and not self.claim.queue and self.may_queue

    @property
    def announce_at(self) -> Micros:
        return self.started + ANNOUNCE_AFTER


def acquire_steps(
    observations: Observations,
    attempt: Attempt,
    terms: Terms,
    now: Micros,
    started: Micros | None = None,
) -> Steps[Hold]:
    """Get the grant, or raise `Busy` (did not wait) or `AcquireTimeout` (waited in vain).

    `now` is the own clock's time; the timeout counts from `started`, or else from now.
    """
    claim: Claim = attempt.command  # type: ignore[assignment]
    started = now if started is None else started
    attempt.by = answers_by(started, terms.timeout, terms.request_timeout)
    facts = observations.facts
    wait: _Wait | None = None  # most claims are granted at once and need none
    # Where the refusal and the place are one request, a claim asks for a place at its first try.
    in_one_trip = facts.scripted or (
        attempt.key in observations.contended and observations.can_amend(now)
    )
    queues = terms.fair or in_one_trip or now - started >= ANNOUNCE_AFTER
    if queues and not claim.queue and terms.timeout != 0:
        wait = _wait_of(attempt, terms, started, facts)
        known = observations.recall(attempt.key)
        wait.get_in_line(now, len(known.record.queue) if known else 0)
    too_late: Free | None = None  # gives back what had run out when the answer came
    back_at = observations.steps_back_until(attempt.key)
    if now < back_at and terms.timeout != 0:
        now = yield from _step_back_steps(back_at, now, terms.timeout)
    while True:
        if attempt.given_up:
            raise Refused(f"The claim on {attempt.key!r} was given up.", key=attempt.key)
        try:
            command = too_late or attempt.command
            verdict, view = yield from apply_steps(observations, attempt, command, now)
        except (Unavailable, Misconfigured, OutcomeUnknown) as trouble:
            if too_late is not None:
                trouble = _not_given_back(attempt, trouble)
            if isinstance(trouble, Misconfigured):
                raise
            wait = wait or _wait_of(attempt, terms, started, facts)
            if attempt.trouble_since is None:
                attempt.trouble_since = now
            yield from wait.ride_out_steps(trouble, "acquire")
            now = yield from NOW
            continue
        now = view.got
        if too_late is None and type(verdict) is Granted:
            sent, waited = _sent_at(attempt, verdict, view), now - started
            hold = hold_of(attempt.key, verdict, sent, terms.care, waited, attempt.number)
            if hold.valid(now):
                return hold
        wait = wait or _wait_of(attempt, terms, started, facts)
        if too_late is not None:
            too_late = None
            yield from _start_anew_steps(wait, now)
        elif type(verdict) is Granted:
            too_late = Free(wait.claim.token)
        elif type(verdict) is Blocked and wait.queues_when_refused:
            observations.contend(attempt.key)
            observations.remember(attempt.key, view)
            wait.get_in_line(now, verdict.places())
        elif type(verdict) is Blocked:
            inherited = yield from _wait_turn_steps(observations, wait, verdict, view)
            if inherited is not None:
                now = yield from NOW
                heir = _inherit(attempt, inherited, terms.care, now)
                if heir is not None:
                    heir.waited = now - started
                    return heir
        else:
            assert isinstance(verdict, Mismatch)
            raise LimitMismatch(
                f"{attempt.key!r} is held with limit={verdict.limit}, and this call named "
                f"limit={wait.claim.limit}: all parties must name the same limit."
            )
        wait.trouble_since = attempt.trouble_since = None
        now = yield from NOW
        if type(verdict) is Blocked and now >= attempt.by:
            # We were woken so late that no answer is of use: this machine slept, or is too busy.
            raise wait.not_free(verdict.holders, verdict.places())
        if not wait.claim.queue and now >= wait.announce_at:
            wait.get_in_line(now, verdict.places() if type(verdict) is Blocked else 0)


def _inherit(attempt: Attempt, inherited: Inherited, care: Care, now: Micros) -> Hold | None:
    """Returns the hold that a wake-up has brought. None if this claim has to look by itself: the
    wake-up is not about the latest write of our place; the claim was given up, and its grant may
    have been freed; or a look may find more of the ttl, because that write is old or nobody renews
    the lease."""
    claim: Claim = attempt.command  # type: ignore[assignment]
    latest, sent = next(reversed(attempt.sent.items()))
    if (
        attempt.given_up
        or inherited.beat != latest
        or now - sent > claim.ttl // BEATS_PER_TTL
        or not care.keep
    ):
        return None
    holder = claim.holder(inherited.fence, inherited.at, inherited.expires_at, latest)
    granted = Granted(holder, (), inherited.last)
    hold = hold_of(attempt.key, granted, sent, care, attempt=attempt.number)
    hold.acquired = hold.alive = now  # and not when we took our place
    hold.contended = inherited.contended
    return hold


def _sent_at(attempt: Attempt, granted: Granted, view: View) -> Micros:
    """Returns the moment from which the deadline of a grant counts: when its write was sent. A
    grant that another party wrote for our place in the queue came later than the write of that
    place, so it counts from there, or later still: the clock that came with the record says how
    much of the ttl is left, and so when the ttl began."""
    holder: Holder = granted.holder
    sent = attempt.sent_at(holder.beat)
    claim: Claim = attempt.command  # type: ignore[assignment]
    if not claim.inherits or view.now is None or not holder.expires_at:
        return sent
    rest = holder.expires_at - view.now.latest
    return max(sent, view.sent - max(0, holder.ttl - rest))


def _step_back_steps(back_at: Micros, now: Micros, timeout: Micros | None) -> Steps[Micros]:
    """Leave the lock to others for a moment. Returns the own clock's time."""
    pause = back_at - now
    yield from Sleep(pause if timeout is None else min(pause, timeout // 2))
    return (yield from NOW)


def _wait_of(attempt: Attempt, terms: Terms, started: Micros, facts: Facts) -> _Wait:
    claim: Claim = attempt.command  # type: ignore[assignment]
    return _Wait(
        attempt.key, claim.owner, terms.timeout, terms.store_patience, started,
        attempt.trouble_since, attempt=attempt, fair=terms.fair, facts=facts,
        attempt_number=attempt.number, long_wait=terms.long_wait,
    )  # fmt: skip


def _not_given_back(attempt: Attempt, trouble: HoldfastError) -> OutcomeUnknown:
    """What to raise when the lease ran out on its way and may still stand in the store."""
    unknown = OutcomeUnknown(
        f"The lease on {attempt.key!r} had run out when the store's answer came, and it is not "
        f"known whether it was given back: {trouble}"
    )
    unknown.__cause__ = trouble.__cause__
    return unknown


def _start_anew_steps(wait: _Wait, now: Micros) -> Steps[None]:
    """The reply was so slow that the lease had expired when it came, and was given back. The next
    claim gets a token of its own: if the `Free` arrives twice, the second one must not end it."""
    attempt = wait.attempt
    attempt.touched = False
    if wait.out_of_time(now):
        raise Unavailable(
            f"The store took longer to answer than the ttl of {wait.claim.ttl / SECOND:g} s: "
            f"the lease on {attempt.key!r} had run out when the answer came."
        )
    # Not in a variable, which a traceback might show.
    attempt.command = replace(wait.claim, token=(yield from Draw(TOKEN_BYTES)))


def _wait_turn_steps(
    observations: Observations, wait: _Wait, blocked: Blocked, view: View
) -> Steps[Inherited | None]:
    """Wait until it may be our turn, until the place must be renewed, or until time is up. Returns
    what the wake-up has brought."""
    key, now = wait.key, view.got
    wait.attempt.blocked_by = blocked.holders
    frees_at = [observations.dead_from(key, holder, view.now, now) for holder in blocked.holders]
    places_end_at = [observations.dead_from(key, waiter, view.now, now) for waiter in blocked.ahead]
    told_free_at = min(frees_at or places_end_at, default=None)
    # When a waiter ahead dies, the one behind it tries by itself, and its write notifies whose turn
    # it is. Only when all of them may be dead is it for us: otherwise the whole queue would come.
    if places_end_at:
        frees_at.append(max(places_end_at))

    def waiting(at: Micros) -> Waiting:
        return wait.waiting(blocked.holders, blocked.ahead, blocked.more, told_free_at, at)

    yield from Emit(waiting(now))
    if wait.out_of_time(now):
        raise wait.not_free(blocked.holders, blocked.places())
    pace = 0
    if blocked.queued:
        pace = min(blocked.places() * PACE, SLOWEST_PACE)
        wakes_at = [now + LOOK_AGAIN]
        patience = wait.claim.patience
        if wait.ends_at is None or now + patience < wait.ends_at:  # else it lasts until the end
            wakes_at.append(now + patience // BEATS_PER_TTL)
    else:
        wakes_at = [now + LOOK_AGAIN_UNQUEUED]
        if now < wait.announce_at:
            wakes_at.append(wait.announce_at)
    wakes_at += [at + pace for at in frees_at]
    observations.contend(key)
    # The next try is prepared before the wait: after it, a free lock would wait for us.
    if wait.claim.queue:
        wait.get_in_line(now, blocked.places())
    wait.attempt.forget_writes()
    wait.attempt.next_beat = yield from Draw(BEAT_BYTES)
    token = wait.claim.token
    found = yield from wait.wait_steps(view.version, token, now, min(wakes_at), waiting)
    if isinstance(found, Entry):
        observations.expect(key, found, now)
        return None
    if wait.facts.amends and (found or blocked.places() or (yield from NOW) < min(wakes_at)):
        observations.forget(key)  # it has changed: we were woken for that, or others renew places
    return found


# --- many keys ------------------------------------------------------------------------------


def canonical(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Returns the attempts in the one order in which every party claims."""
    return sorted(attempts, key=lambda attempt: attempt.key.encode())


def acquire_all_steps(
    observations: Observations, attempts: Sequence[Attempt], terms: Terms
) -> Steps[list[Hold]]:
    """Get all of them, in the one order, or raise; then `undo_steps` frees what was granted."""
    started = yield from NOW
    holds = []
    for attempt in canonical(attempts):
        now = yield from NOW
        hold = yield from acquire_steps(observations, attempt, terms, now, started)
        holds.append(hold)
        yield from Keep(hold)
    now = yield from NOW
    for hold in holds:
        if not hold.valid(now):
            raise LeaseLost(
                f"The lease on {hold.key!r} was lost while waiting for the other keys.",
                key=hold.key,
            )
    return holds
