"""Cohorts: callers of one client that want one lock in the same way are one party to the store.

One of them has the *turn*. The others stand in line inside of the process and send no request.
"The same way" is: exclusive, with the same ttl, kept, and not with `fair=False`.

 1. The caller that has the turn claims at the store, holds the lock, and frees it. The turn goes
    from caller to caller in the order in which they came.
 2. A hold that is released is *passed on* to the first in line, without a request, if
      - it is surely valid, and no ticket for it was given away;
      - its grant has a number left: each lease has a fence of its own (rule 3 of `rules`);
      - its time is not over: `TURN` after the grant, or `SHORT_TURN` if somebody was seen to wait
        at the store, and in any case before the first beat is due.
    So the parties that wait at the store wait for a bounded time more. The next lease has the
    token, the ttl and the deadline of the one before: nothing is extended without the store. It has
    an owner, a note, a `max_hold`, callbacks and a loss of its own; the next beat writes owner and
    note.
 3. Otherwise the hold is freed at the store, and then the first in line claims there, behind the
    parties that wait there already.
 4. A turn is over when its hold is not valid any more, or when the call that worked for it is gone.
    The first in line looks now and then whether that is so, and takes the turn. So a caller that
    has the turn and comes to grief stops the others for a bounded time.
 5. One assignment moves the turn. An interrupt comes before it or after it; rule 4 does the rest.
 6. If the store fails while the caller with the turn claims, the line is dissolved: each caller in
    it goes to the store by itself. Otherwise one after the other would be patient with the store.
 7. No promise depends on who takes part: a caller that goes to the store by itself is one more
    party there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from weakref import ref

from msgspec.structs import replace

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import Claim
from holdfast.core.effects import NOW, Emit, Park, Steps
from holdfast.core.holds import BEATS_PER_TTL, Attempt, Care, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Holder, Micros, Waiter
from holdfast.core.waiting import BoundedWait

# For so long after its grant a hold is passed on.
TURN: Micros = SECOND // 4
# And if somebody was seen to wait at the store.
SHORT_TURN: Micros = SECOND // 50
# The first in line looks this often whether the turn is over; the others more rarely.
LOOK_AGAIN: Micros = SECOND
LOOK_AGAIN_BEHIND: Micros = 10 * SECOND


def _awake() -> None:
    """Does nothing: the caller is awake."""


class Member:
    """One call. As long as it is the only one for its key, `Cohorts` has the member itself in the
    place of a `Cohort`."""

    cohort: Cohort | None = None
    hold: Hold | None = None  # what was granted to it
    wake: Callable[[], object] = staticmethod(_awake)  # replaced when the caller is parked
    place = 0  # counted from the beginning of its cohort
    apart = False  # it goes to the store by itself: its line was dissolved

    def __init__(self, attempt: Attempt, care: Care, now: Micros) -> None:
        self.key = attempt.key
        self.claim: Claim = attempt.command  # type: ignore[assignment]
        self.care = care
        self.since = now
        self.work = ref(attempt)  # None when the call is gone

    @property
    def called(self) -> bool:
        """Whether it need not wait in line any longer."""
        return self.apart or (self.cohort is not None and self.cohort.turn.by is self)


class Turn:
    """Whose turn it is, and the hold, if there is one."""

    __slots__ = ("by", "hold", "work")

    def __init__(
        self, by: Member | None, work: Callable[[], Attempt | None], hold: Hold | None = None
    ) -> None:
        self.by = by
        self.work = work  # returns the attempt that works for it; None when that call is gone
        self.hold = hold

    def over(self, now: Micros) -> bool:
        """Whether this turn is over (rule 4)."""
        return self.work() is None if self.hold is None else not self.hold.valid(now)


def _no_work() -> None:
    return None


_NOBODYS = Turn(None, _no_work)


class Cohort:
    """The callers of one key, and whose turn it is."""

    __slots__ = ("key", "line", "places", "ttl", "turn")

    def __init__(self, key: str, ttl: Micros, turn: Turn) -> None:
        self.key = key
        self.ttl = ttl
        self.turn = turn
        self.places = 0  # how many have stood in line
        self.line: OrderedDict[Member, None] = OrderedDict()

    def first(self) -> Member | None:
        """Returns the first in line whose call is not gone."""
        while self.line:
            member = next(iter(self.line))
            if member.work() is not None:
                return member
            self.line.pop(member, None)
        return None

    def ahead_of(self, member: Member) -> int:
        """Returns how many are ahead of this member in line. Some may have left in between, so
        there may be fewer."""
        return member.place - next(iter(self.line), member).place

    def waiters(self, hold: Hold) -> tuple[Waiter, ...]:
        """Returns who stands in line behind this hold, as the store would show it."""
        starts = hold.holder.acquired_at - hold.acquired
        return tuple(
            Waiter("", one.claim.owner, one.claim.mode, self.ttl, max(0, starts + one.since), 0, "")
            for one in list(self.line)
        )


class Cohorts:
    """All cohorts of one client. `alone` is a lock that keeps other threads out. Without `pass_on`
    every caller goes to the store by itself."""

    def __init__(self, alone: AbstractContextManager[object], *, pass_on: bool = True) -> None:
        self._alone = alone
        self._pass_on = pass_on
        self._by_key: dict[str, Cohort | Member] = {}

    # --- to get it ------------------------------------------------------------------------------

    def join(self, member: Member, now: Micros) -> bool:
        """Stand in line. Returns True if this caller is to go to the store instead, because it is
        its turn, or by itself."""
        with self._alone:
            cohort = self._cohort(member)
            if cohort is None or cohort.ttl != member.claim.ttl:
                return True
            member.cohort = cohort
            if cohort.turn.over(now):
                first = cohort.first()
                if first is None:
                    cohort.turn = Turn(member, member.work)
                    return True
                first.wake()
            cohort.places = member.place = cohort.places + 1
            cohort.line[member] = None
            return False

    def enter(self, member: Member, terms: Terms, now: Micros) -> bool:
        """Take part, if this caller wants the lock in a way that can be shared. Returns True if it
        is to run `acquire_steps`, False if it is to run `acquire_in_line_steps`.

        When these steps have succeeded, the caller calls `granted`. If they fail, the caller frees
        what it was `given` and calls `move_on`; before that `dissolve`, if the store failed.
        """
        shareable = member.claim.mode == "exclusive" and member.care.keep
        if terms.fair is False or not shareable or not self._pass_on:
            return True
        if self._by_key.setdefault(member.key, member) is member:
            return True
        if terms.timeout == 0:
            return self.holder_of(member.key, now) is None
        return self.join(member, now)

    def holder_of(self, key: str, now: Micros) -> Hold | None:
        """Returns the hold of this client on a key, if it surely has one."""
        other = self._by_key.get(key)
        if other is None:
            return None
        hold = other.hold if isinstance(other, Member) else other.turn.hold
        return hold if hold is not None and hold.valid(now) else None

    def _cohort(self, member: Member) -> Cohort | None:
        """Returns the cohort of the caller that came before this one; None if there is no such
        caller any more."""
        other = self._by_key.setdefault(member.key, member)
        if isinstance(other, Cohort):
            return other
        if other is member:
            return None
        turn = Turn(other, other.work)
        # In this order, because `granted` looks without the mutex, and from the end.
        other.cohort = cohort = Cohort(member.key, other.claim.ttl, turn)
        self._by_key[member.key] = cohort
        turn.hold = other.hold
        return cohort

    def turn_of(self, member: Member, now: Micros) -> Turn | None:
        """Returns this caller's turn, if it has one by now: it was given the turn, or the turn of
        another one is over and this caller is the first in line."""
        with self._alone:
            cohort = member.cohort
            assert cohort is not None
            turn = cohort.turn
            mine = turn.by is member
            if turn.over(now) and (mine or cohort.first() is member):
                # A hold that was passed on to this caller may have run out before it woke up.
                turn = cohort.turn = Turn(member, member.work)
                mine = True
            if mine:
                cohort.line.pop(member, None)
            return turn if mine else None

    def granted(self, member: Member, hold: Hold) -> None:
        """A hold was granted to this caller: from now on it can be passed on."""
        if hold.member is not None:
            return  # it was passed on
        lone = self._by_key.get(member.key) is member
        if not (lone or self._has_turn(member)):
            return
        hold.turn_began = member.since + hold.waited
        hold.member = member
        member.hold = hold
        if member.cohort is not None:  # also if somebody has just come
            member.cohort.turn.hold = hold

    def _has_turn(self, member: Member) -> bool:
        if member.cohort is None:
            return self._by_key.get(member.key) is member
        return member.cohort.turn.by is member

    # --- to give it up ----------------------------------------------------------------------------

    def pass_on(self, hold: Hold, now: Micros) -> bool:
        """Pass on a hold whose lease was released, and the turn with it. Returns False if the hold
        must be freed at the store."""
        member: Member | None = hold.member
        cohort = None if member is None else member.cohort
        if member is None or cohort is None or not cohort.line:
            return False
        with self._alone:
            if cohort.turn.hold is not hold or not may_be_passed_on(hold, now):
                return False
            heir = cohort.first()
            if heir is None:
                return False
            cohort.turn = Turn(heir, heir.work, passed_on(hold, heir, now))
            heir.wake()
        member.hold = None  # as in `move_on`, which has nothing more to do
        return True

    def was_passed_on(self, hold: Hold) -> bool:
        """Whether another member has the grant of this hold, so that it must not be freed."""
        member: Member | None = hold.member
        cohort = None if member is None else member.cohort
        if cohort is None or cohort.turn.hold is None or cohort.turn.hold is hold:
            return False
        return cohort.turn.hold.token == hold.token

    def going_back(self, hold: Hold, attempt: Attempt) -> None:
        """Note that this attempt is about to free the hold at the store: those in line wait until
        it has ended."""
        member: Member | None = hold.member
        cohort = None if member is None else member.cohort
        if cohort is None or not cohort.line:
            return
        with self._alone:
            if cohort.turn.hold is hold:
                cohort.turn = Turn(member, ref(attempt))

    def given(self, member: Member) -> Hold | None:
        """Returns the hold that this caller has, granted or passed on."""
        if not self._has_turn(member):
            return None
        return member.hold if member.cohort is None else member.cohort.turn.hold

    def move_on(self, member: Member | None) -> None:
        """This caller is done: it leaves the line; and if it had the turn, the next one has it."""
        if member is None:
            return
        member.hold = None  # the hold refers to the member: no circle is left to the collector
        with self._alone:
            cohort = member.cohort
            if cohort is None:
                if self._by_key.get(member.key) is member:
                    del self._by_key[member.key]
                return
            cohort.line.pop(member, None)
            if cohort.turn.by is member:
                self._next(cohort)
            elif cohort.turn.by is not None:
                cohort.turn.by.wake()  # an interrupt may have come between the turn and this

    def evicted(self, key: str) -> None:
        """This client has evicted the holders of a key: the next one goes to the store."""
        with self._alone:
            cohort = self._by_key.get(key)
            if isinstance(cohort, Member):
                del self._by_key[key]
            elif cohort is not None and cohort.turn.hold is not None:
                self._next(cohort)

    def dissolve(self, member: Member, trouble_since: Micros | None) -> None:
        """The store failed while this member had the turn: let the others go there by
        themselves."""
        with self._alone:
            cohort = member.cohort
            if cohort is None or cohort.turn.by is not member:
                return
            line = list(cohort.line)
            for one in line:
                attempt = one.work()
                if attempt is not None:
                    attempt.trouble_since = trouble_since
                one.apart = True
            self._forget(cohort)
            for one in line:
                one.wake()

    def close(self) -> None:
        """Wake everybody: the client is closed."""
        with self._alone:
            for cohort in list(self._by_key.values()):
                for member in list(cohort.line) if isinstance(cohort, Cohort) else ():
                    member.wake()

    def _next(self, cohort: Cohort) -> None:
        heir = cohort.first()
        if heir is None:
            self._forget(cohort)
            return
        cohort.turn = Turn(heir, heir.work)
        heir.wake()

    def _forget(self, cohort: Cohort) -> None:
        cohort.turn = _NOBODYS
        cohort.line.clear()
        if self._by_key.get(cohort.key) is cohort:
            del self._by_key[cohort.key]


def may_be_passed_on(hold: Hold, now: Micros) -> bool:
    """Rule 2. The lease has been ended by its holder."""
    if hold.lapsed or now >= hold.deadline or hold.shared or hold.fence >= hold.last:
        return False
    turn_ends = hold.turn_began + (SHORT_TURN if hold.contended else TURN)
    first_beat = hold.renewed + hold.ttl // (2 * BEATS_PER_TTL)
    return now < turn_ends and now < first_beat


def passed_on(hold: Hold, heir: Member, now: Micros) -> Hold:
    """Returns the hold of the next lease: of the same grant, with the next number."""
    claim, attempt = heir.claim, heir.work()
    holder = replace(hold.holder, fence=hold.fence + 1, owner=claim.owner, note=claim.note)
    return Hold(
        hold.key,
        holder,
        hold.token,
        hold.ttl,
        hold.wanted,
        acquired=now,
        renewed=hold.renewed,
        deadline=hold.deadline,
        care=heir.care,
        waited=now - heir.since,
        attempt=0 if attempt is None else attempt.number,
        alive=now,
        last=hold.last,
        unwritten=True,
        contended=hold.contended,
        turn_began=hold.turn_began,
        member=heir,
    )


# --- waiting for the turn -------------------------------------------------------------------------


def wait_in_line_steps(
    cohorts: Cohorts, member: Member, wait: BoundedWait, now: Micros
) -> Steps[Hold | None]:
    """Wait for the turn, which somebody else had when this caller came. Returns the hold that was
    passed on; None: claim at the store now."""
    wakes_at = now + LOOK_AGAIN
    while True:
        for at in (wait.ends_at, wait.long_at):
            wakes_at = wakes_at if at is None else min(wakes_at, at)
        yield from Park(member, wakes_at - now)
        now = yield from NOW
        turn = cohorts.turn_of(member, now)
        if turn is not None:
            return turn.hold
        if member.apart:
            return None
        # Only now is the wait told: most waits end after a moment, and nobody wants to hear of
        # them.
        cohort = member.cohort
        assert cohort is not None
        holders, ahead = _in_the_way(cohort, member)
        hold = cohort.turn.hold
        yield from Emit(wait.waiting(holders, (), ahead, hold.deadline if hold else None, now))
        if wait.out_of_time(now):
            raise wait.not_free(holders, ahead)
        wakes_at = now + (LOOK_AGAIN_BEHIND if ahead else LOOK_AGAIN)


def _in_the_way(cohort: Cohort, member: Member) -> tuple[tuple[Holder, ...], int]:
    """Returns who holds the lock, as far as it is known, and how many are ahead in line."""
    turn, ahead = cohort.turn, cohort.ahead_of(member)
    if turn.hold is not None:
        return (turn.hold.holder,), ahead
    attempt = turn.work()
    return (attempt.blocked_by if attempt is not None else ()), ahead + 1


def acquire_in_line_steps(
    observations: Observations,
    cohorts: Cohorts,
    member: Member,
    attempt: Attempt,
    terms: Terms,
) -> Steps[Hold]:
    """Wait for the turn, and get the grant: passed on, or from the store. A caller that does not
    wait is told who of this client holds the lock, if somebody surely does."""
    now = started = member.since
    wait = _wait_of(member, attempt, terms)
    if terms.timeout == 0:
        held = cohorts.holder_of(member.key, now)
        if held is not None:
            yield from Emit(wait.waiting((held.holder,), (), 0, held.deadline, now))
            raise wait.not_free((held.holder,), 0)
    else:
        hold = yield from wait_in_line_steps(cohorts, member, wait, now)
        if hold is not None:
            return hold
        now = yield from NOW
        terms = replace(terms, long_wait=wait.long_wait)  # told once
    return (yield from acquire_steps(observations, attempt, terms, now, started))


def _wait_of(member: Member, attempt: Attempt, terms: Terms) -> BoundedWait:
    return BoundedWait(
        attempt.key, member.claim.owner, terms.timeout, terms.store_patience, member.since,
        attempt_number=attempt.number, long_wait=terms.long_wait,
    )  # fmt: skip
