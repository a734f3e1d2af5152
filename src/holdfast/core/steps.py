"""The protocol of one command: load, ask the rules, swap, and look again.

Generators that yield effects (see `effects`) and share the suffix `_steps`. They run
unchanged under threads, asyncio and the simulator. How they work:

 1. `apply_steps` carries one command to the end: load, decide, swap. A conflict brings
    the record that is there instead, and the rules are asked again.
 2. After an `OutcomeUnknown` it loads and looks for its own token; after a second one it
    is for the caller to try again, or to give up in time. Every write has its
    own `beat`; the deadline of a grant is that of the write that landed. Where the store
    runs the rules, the command is sent again instead: it finds its own token. Only if the
    connection broke, though: a store that was silent for long would be so again.
 3. What a client wrote last, or was shown when it was woken, it remembers, so that the next
    swap goes without a load. A remembered record is only good for a swap, which proves it;
    never for an answer. Of a key that it does not remember a claim may presume that there is no
    record (`Observations.presume`): a lock for each customer or order is then got in one trip.
 4. "Surely not done" is said of the whole attempt: once the outcome of a write is unknown,
    it stays so (`unsettled`) until an answer shows what became of it. A later try that was
    surely not carried out shows nothing. A whole command expects no version: if it had no answer,
    it may arrive after any later one, and the doubt stays (`commanded`).
 5. A key that others want too is amended, where the store can: it holds the record still while
    the rules look at it, so that no write of another client makes ours fail. What has no answer is
    sent again, as to a store that runs the rules. Across a network a claim that only
    wants a place in the queue is swapped: if it held the record still, it would hold up the party
    that frees the lock.
 6. An attempt knows by when its caller needs an answer (`Attempt.by`). All its requests carry
    that; between two conflicts the steps look at the clock.
 7. State is changed between yields only. An interrupt may end a generator at any
    instruction: the attempt remembers what may be in the store, and `undo_steps` takes
    it out. A caller that runs steps with an attempt runs `undo_steps` if they do not succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from holdfast.core import rules
from holdfast.core.commands import (
    Blocked,
    Claim,
    Command,
    Decision,
    Free,
    Freed,
    Granted,
    Stamp,
    Verdict,
)
from holdfast.core.contract import Amended, Applied, Entry, Swapped
from holdfast.core.effects import (
    NOW,
    WALL,
    Amend,
    Apply,
    Ask,
    Draw,
    Load,
    Sleep,
    Steps,
    Swap,
)
from holdfast.core.holds import Attempt
from holdfast.core.observations import Observations, View
from holdfast.core.records import (
    EMPTY,
    LARGEST_FENCE,
    SECOND,
    Discreet,
    Micros,
    Record,
)
from holdfast.errors import (
    CorruptRecord,
    HoldfastError,
    Misconfigured,
    OutcomeUnknown,
    Unavailable,
)

TOKEN_BYTES = 16
BEAT_BYTES = 8

# Store trouble is tried again after a pause that doubles between these two.
FIRST_PAUSE: Micros = 20_000
LONGEST_PAUSE: Micros = 2 * SECOND
# A conflict means that another party made progress. After a few in a row we pause, and a claim that
# only wants a place in the queue pauses longer each time: of a thousand that come together each
# write lets in one, and the tries of the others slow down the one whose turn it is.
CONFLICTS_AT_FULL_SPEED = 4
SHORTEST_PAUSE: Micros = FIRST_PAUSE >> CONFLICTS_AT_FULL_SPEED
# But not for long: as long as it has no place, those that come later may overtake it.
LONGEST_PLACE_PAUSE: Micros = SECOND // 4
# Refused writes of a record that does not change. Two that write at once may both be refused, but
# not again and again.
MOST_REFUSALS = 20
# If the error comes within this time, the connection broke, and another try may be answered.
CUT_OFF_WITHIN: Micros = SECOND
# Verdicts that come with a write: if the remembered record was stale, the swap is a conflict. (A
# place in the queue is one too, but where it makes other writes fail, it is looked for first.)
_PROVEN_BY_SWAP = frozenset({Granted, Freed})
_PROVEN_WHERE_PLACES_ARE_CHEAP = frozenset({Granted, Freed, Blocked})


# What became of a command, and the record it was about (a scripted store shows no record,
# only its version and clock).
Answer: TypeAlias = tuple[Verdict, View]
R = TypeVar("R")
A = TypeVar("A")


# --- one command ----------------------------------------------------------------------------


def look_steps(observations: Observations, key: str, by: Micros) -> Steps[View]:
    """Load a record, and note it in the observations."""
    entry, sent, got = yield from Load(key, by)
    return _view(observations, key, entry, sent, got)


def _view(observations: Observations, key: str, entry: Entry, sent: Micros, got: Micros) -> View:
    if entry.fault is not None:
        raise corrupt(key, entry)
    return observations.saw(key, entry, sent, got)


def corrupt(key: str, entry: Entry) -> CorruptRecord:
    """Returns what to raise about a record that cannot be used."""
    fault = entry.fault or "its text is damaged"
    if entry.record.fence >= LARGEST_FENCE:
        fault = f"its fence {entry.record.fence} cannot grow any further"
    what_to_do = "`holdfast evict` replaces it by an empty one"
    if entry.newer:
        what_to_do = "this release does not evict it, because whoever wrote it may hold the lock"
    return CorruptRecord(
        f"The record of {key!r} cannot be used: {fault}. It was left alone; {what_to_do}.",
        key=key,
        newer=entry.newer,
    )


def not_written(key: str) -> Unavailable:
    """Returns what to raise when a store ignores a write."""
    return Unavailable(
        f"The store does not write the record of {key!r}, although it has not changed: is there "
        f"a trigger or a policy in the way?"
    )


def _outrun(key: str, conflicts: int) -> Unavailable:
    return Unavailable(
        f"Others changed the record of {key!r} {conflicts} times while this call tried to, and its "
        f"time is over."
    )


def apply_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """Carry one command to the end. `now` is the own clock's time, or a little earlier."""
    key, steps = attempt.key, _swap_steps
    if observations.facts.scripted:
        steps = _script_steps
    elif (
        key in observations.contended
        and observations.can_amend(now)
        and not _stands_in_line(observations, command)
    ):
        steps = _amend_steps
    return steps(observations, attempt, command, now)


def _stands_in_line(observations: Observations, command: Command) -> bool:
    """Whether a command asks for a place in the queue, across a network. It is swapped also where
    others want the key: an amend may hold the record for two trips, and a crowd would line up for
    the record, with the party that frees the lock behind it."""
    in_line = type(command) is Claim and command.queue
    return in_line and observations.facts.reach == "network"


def _naming_heir(observations: Observations, command: Command, record: Record) -> Command:
    """Returns a command that frees a lock together with its heir: the first in the queue, if that
    one surely waits at this moment (rule 7 of `rules`). Returns any other command as it is."""
    if type(command) is not Free or not record.queue:
        return command
    first = record.queue[0]
    if first.lease is None or not observations.awaits(first.token):
        return command
    return Free(command.token, first.token)


def _swap_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """Load, decide and swap, again after each conflict."""
    key = attempt.key
    proofs = _PROVEN_WHERE_PLACES_ARE_CHEAP if observations.facts.amends else _PROVEN_BY_SWAP
    view = observations.recall(key)
    unknown = view is None and type(command) is Claim
    if unknown:
        view = observations.presume(key, now)
    proven = False  # a view is proven by a reply; a recalled or presumed one only by its swap
    unanswered = False
    conflicts = refusals = 0
    while True:
        beat, attempt.next_beat = attempt.next_beat, ""
        if not beat:
            beat = yield from Draw(BEAT_BYTES)
        reading = observations.reading
        stamp = reading.stamp(now, beat)
        vague = stamp is None or (not proven and reading.vague(now, attempt.by))
        if view is None or (vague and view.now is not None):
            view = yield from _look_again_steps(observations, attempt)
            proven = True
            now = view.got
            if unknown:
                observations.keys_are_new = view.version is None
                unknown = False
            stamp = observations.reading.stamp(now, beat)
        if stamp is None:
            stamp = yield from _unclocked_stamp_steps(observations, view, beat)
        record = view.record
        dead: rules.Dead = rules.nobody
        if record.holders or record.queue:
            # A reply proves a party's silence only until the request for it left.
            dead = observations.dead(key, view.now, view.sent if proven else now)
        asked = _naming_heir(observations, command, record) if record.queue else command
        decision = rules.decide(asked, record, dead, stamp)
        verdict, new = decision.verdict, decision.record
        if not proven and (new is None or type(verdict) not in proofs):
            view = None
            continue
        if new is None:
            if type(verdict) is Granted:  # written by an attempt that was said to have failed
                attempt.touched = True
            return verdict, view
        if new.fence > LARGEST_FENCE:
            raise corrupt(key, Entry(record))
        if conflicts and now >= attempt.by:
            if type(verdict) is Blocked:
                return verdict, view  # a place in the queue is of no use any more
            raise worst_known_outcome(_outrun(key, conflicts), attempt)
        touched_before, unsettled_before = attempt.touched, attempt.unsettled
        attempt.sent[beat] = now
        attempt.touched = attempt.unsettled = True
        try:
            outcome, got = yield from Swap(key, view.version, new, decision.wake, attempt.by)
        except OutcomeUnknown:
            attempt.doubted, attempt.expected = True, view.version
            observations.forget(key)
            now = yield from NOW
            if unanswered or now >= attempt.by:  # after two in a row the caller decides
                raise
            unanswered = True
            view = None
            continue
        except HoldfastError as trouble:
            attempt.touched, attempt.unsettled = touched_before, unsettled_before
            raise worst_known_outcome(trouble, attempt) from trouble.__cause__
        attempt.unsettled = attempt.commanded  # a command, which expects no version, may still come
        if isinstance(outcome, Swapped):
            view = View(outcome.now, now, got, new, outcome.version)
            observations.wrote(key, view)
            return verdict, view
        attempt.touched = touched_before or attempt.shows_in(outcome.entry.record)
        # What is refused may have been done all the same, by the first of two deliveries. Then
        # "surely not done" would be wrong, whatever becomes of the next request.
        attempt.unsettled |= attempt.may_be_done_in(outcome.entry.record)
        observations.forget(key)
        refusals = refusals + 1 if outcome.entry.version == view.version else 0
        if refusals > MOST_REFUSALS:
            raise not_written(key)
        view, proven = _view(observations, key, outcome.entry, now, got), True
        now = got
        if unknown:  # the record was presumed not to exist: the conflict is no sign of others
            observations.keys_are_new = unknown = False
            continue
        observations.contend(key)
        conflicts += 1
        in_line = type(verdict) is Blocked and _stands_in_line(observations, command)
        # Across a network an amend begins with a look; a conflict that leaves no doubt is one.
        is_remote = observations.facts.reach == "network"
        looked = is_remote and conflicts == 1 and not attempt.unsettled
        if observations.can_amend(now) and not in_line and not looked:
            return (yield from _amend_steps(observations, attempt, command, now))
        at_full_speed = 1 if in_line else CONFLICTS_AT_FULL_SPEED
        if conflicts > at_full_speed and now < attempt.by:
            left = attempt.by - now
            now = yield from _pause_after_conflicts_steps(conflicts, verdict, left)
            if now < attempt.by:
                view = None  # what was seen before the pause is old by now


def _look_again_steps(observations: Observations, attempt: Attempt) -> Steps[View]:
    """Load the record of an attempt, and note in the attempt what that tells about its last write.
    If the answer took long, as after an outage, the record is loaded once more: the reading of the
    clock is vague by that time, the lease would be granted for so much longer, and the next holder
    would have to wait for it if this one died."""
    try:
        view = yield from look_steps(observations, attempt.key, attempt.by)
        if view.now is not None and view.vague(view.got, attempt.by):
            view = yield from look_steps(observations, attempt.key, attempt.by)
    except HoldfastError as trouble:
        raise worst_known_outcome(trouble, attempt) from trouble.__cause__
    attempt.saw(view.version, view.record)
    return view


def _unclocked_stamp_steps(observations: Observations, view: View, beat: str) -> Steps[Stamp]:
    """The stamp of a write without a reading of the store's clock. The fence of a new record should
    be recent; that of an old one must never be ahead of the clock."""
    reached = None if view.version is None else observations.reached
    return Stamp((yield from WALL), beat, False, reached)


def _pause_after_conflicts_steps(
    conflicts: int, verdict: Verdict, longest: Micros
) -> Steps[Micros]:
    """Pause for a random time. For a claim that only wants a place in the queue the longest pause
    doubles with each conflict: conflicts show how many compete for a place, which does not depend
    on how many have one already. Returns the own clock's time."""
    at_most = FIRST_PAUSE
    if type(verdict) is Blocked:
        at_most = min(SHORTEST_PAUSE << conflicts, LONGEST_PLACE_PAUSE)
    drawn = yield from Draw(2)
    yield from Sleep(min(int(drawn, 16) * at_most >> 16, longest))
    return (yield from NOW)


def _script_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """The same in one trip, where the store runs the rules."""

    def ask(beat: str, now: Micros) -> Ask[tuple[Applied, Micros]]:
        return iter(Apply(attempt.key, command, beat, attempt.by))

    applied, sent, got = yield from _one_trip_steps(attempt, ask, now)
    view = View(applied.now, sent, got, EMPTY, applied.version)
    observations.read_clock(view)
    return applied.verdict, view


def _amend_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """The same where the store holds the record still while the rules look at it."""
    key, touched_before = attempt.key, attempt.touched

    def ask(beat: str, now: Micros) -> Ask[tuple[Amended, Micros]]:
        change = Amendment(key, command, beat, now, observations)
        return iter(Amend(key, change, attempt.by))

    amended, sent, got = yield from _one_trip_steps(attempt, ask, now)
    decision, entry = amended.decision, amended.entry
    view = observations.saw(key, entry, sent, got)
    attempt.saw(entry.version, entry.record)
    if decision.record is not None:
        observations.wrote(key, view)
    elif type(decision.verdict) is not Granted and not attempt.doubted:
        attempt.touched = touched_before
    return decision.verdict, view


class Amendment(Discreet, frozen=True, gc=False):
    """A command as a function of the entry that the store has under its key."""

    key: str
    command: Command
    beat: str
    sent: Micros
    observations: Observations

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("command", self.command)]

    def __call__(self, entry: Entry) -> Decision:
        """Returns what the rules decide. The clock in the entry was read after the request left."""
        if entry.fault is not None:
            raise corrupt(self.key, entry)
        stamp = self._stamp(entry)
        # The record was read after the request left, and nobody renews before we have written.
        dead = self.observations.dead(self.key, entry.now, self.sent)
        command = _naming_heir(self.observations, self.command, entry.record)
        decision = rules.decide(command, entry.record, dead, stamp)
        if decision.record is not None and decision.record.fence > LARGEST_FENCE:
            raise corrupt(self.key, Entry(entry.record))
        return decision

    def _stamp(self, entry: Entry) -> Stamp:
        now = entry.now
        if now is not None:
            return Stamp(now.latest, self.beat, True, now.earliest)
        carried = self.observations.reading.stamp(self.sent, self.beat)
        if carried is None:
            raise Unavailable("The store's clock cannot be read just now.")
        return carried


def _one_trip_steps(
    attempt: Attempt, ask: Callable[[str, Micros], Ask[tuple[A, Micros]]], now: Micros
) -> Steps[tuple[A, Micros, Micros]]:
    """Send a whole command, once more if the connection broke. Returns the answer, when the request
    that it answers was sent, and when the answer came."""
    cut_off = False
    while True:
        beat, attempt.next_beat = attempt.next_beat, ""
        if not beat:
            beat = yield from Draw(BEAT_BYTES)
        touched_before, unsettled_before = attempt.touched, attempt.unsettled
        attempt.sent[beat] = now
        attempt.touched = attempt.unsettled = True
        try:
            answer, got = yield from ask(beat, now)
        except OutcomeUnknown:
            attempt.doubted = attempt.commanded = True
            sent, now = now, (yield from NOW)
            if cut_off or now - sent > CUT_OFF_WITHIN or now >= attempt.by:
                raise
            cut_off = True
        except HoldfastError as trouble:
            attempt.touched, attempt.unsettled = touched_before, unsettled_before
            raise worst_known_outcome(trouble, attempt) from trouble.__cause__
        else:
            attempt.unsettled = unsettled_before or attempt.commanded
            return answer, now, got


def worst_known_outcome(trouble: HoldfastError, attempt: Attempt) -> HoldfastError:
    """`Unavailable` and `Misconfigured` say that nothing was done; say it only if that is known.
    (`CorruptRecord` is about what is there, not about what was done.)"""
    says_not_done = isinstance(trouble, (Unavailable, Misconfigured))
    if not attempt.unsettled or not says_not_done or isinstance(trouble, CorruptRecord):
        return trouble
    return OutcomeUnknown(f"It is not known whether the request got through: {trouble}")
