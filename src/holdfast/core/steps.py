"""The protocol: load, ask the rules, swap, look again, wait, time out.

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
    never for an answer.
 4. "Surely not done" is said of the whole attempt: once the outcome of a write is unknown,
    it stays so (`unsettled`) until an answer shows what became of it. A later try that was
    surely not carried out shows nothing.
 5. State is changed between yields only. An interrupt may end a generator at any
    instruction: the attempt remembers what may be in the store, and `undo_steps` takes
    it out. Whoever runs steps with an attempt runs `undo_steps` if they do not succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from holdfast.core import rules
from holdfast.core.commands import (
    Blocked,
    Command,
    Evict,
    Evicted,
    Free,
    Freed,
    Granted,
    Stamp,
    Verdict,
)
from holdfast.core.contract import Entry, Swapped
from holdfast.core.effects import (
    NOW,
    WALL,
    Apply,
    Draw,
    Emit,
    Load,
    Sleep,
    Steps,
    Swap,
)
from holdfast.core.events import StoreTrouble
from holdfast.core.holds import NO_BEAT, Attempt, Care, Hold, hold_of
from holdfast.core.observations import Observations, View
from holdfast.core.records import (
    EMPTY,
    LARGEST_FENCE,
    SECOND,
    Holder,
    Micros,
    Record,
    anonymous,
)
from holdfast.core.validity import Reading
from holdfast.errors import (
    CorruptRecord,
    HoldfastError,
    LeaseLost,
    Misconfigured,
    OutcomeUnknown,
    TicketRefused,
    Unavailable,
)

TOKEN_BYTES = 16
BEAT_BYTES = 8

# Store trouble is tried again after a pause that doubles between these two.
FIRST_PAUSE: Micros = 20_000
LONGEST_PAUSE: Micros = 2 * SECOND
# Conflicts are the progress of others; a few in a row ask for a little distance. Who only wants a
# place in the queue keeps ever more of it: else of a thousand who come together each write lets in
# one, and the others slow down the one whose turn it is.
CONFLICTS_AT_FULL_SPEED = 4
MOST_DOUBLINGS = 6
# Of a record that does not change. Two who write at once may both be refused, but not for long.
MOST_REFUSALS = 20
# Who hears within this time that no answer comes was cut off: the store may answer another try.
CUT_OFF_WITHIN: Micros = SECOND
# Verdicts that come with a write: if a remembered record was stale, the write will not do.
_PROVEN_BY_SWAP = frozenset({Granted, Freed})


# What became of a command, and the record it was about (a scripted store shows no record,
# only its version and clock).
Answer: TypeAlias = tuple[Verdict, View]
R = TypeVar("R")


# --- one command ----------------------------------------------------------------------------


def look_steps(observations: Observations, key: str) -> Steps[View]:
    """Load a record and remember when."""
    entry, sent, got = yield from Load(key)
    return _view(observations, key, entry, sent, got)


def _view(observations: Observations, key: str, entry: Entry, sent: Micros, got: Micros) -> View:
    if entry.fault is not None:
        raise corrupt(key, entry)
    return observations.saw(key, entry, sent, got)


def corrupt(key: str, entry: Entry) -> CorruptRecord:
    """What to raise about a record that cannot be read."""
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


def _not_written(key: str) -> Unavailable:
    return Unavailable(
        f"The store does not write the record of {key!r}, although it has not changed: is there "
        f"a trigger or a policy in the way?"
    )


def apply_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """Carry one command to the end. `now` is the own clock's time, or a little earlier."""
    steps = _script_steps if observations.facts.scripted else _swap_steps
    return steps(observations, attempt, command, now)


def _swap_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """Load, decide, swap; and again, if somebody was faster."""
    key = attempt.key
    view = observations.recall(key)
    proven = False  # a view is proven by a reply; a recalled one only by its swap
    unanswered = False
    conflicts = refusals = 0
    while True:
        beat, attempt.next_beat = attempt.next_beat, ""
        if not beat:
            beat = yield from Draw(BEAT_BYTES)
        stamp = observations.reading.stamp(now, beat)
        if view is None or (stamp is None and view.now is not None):
            try:
                view = yield from look_steps(observations, key)
            except HoldfastError as trouble:
                raise worst_known_outcome(trouble, attempt) from trouble.__cause__
            proven = True
            attempt.saw_version(view.version)
            now = view.got
            stamp = observations.reading.stamp(now, beat)
        if stamp is None:
            # The fence of a new record should be recent; that of an old one never ahead.
            reached = None if view.version is None else observations.reached
            stamp = Stamp((yield from WALL), beat, False, reached)
        record = view.record
        dead: rules.Dead = rules.nobody
        if record.holders or record.queue:
            # A reply proves nobody's silence for longer than until it was asked for.
            dead = observations.dead(key, view.now, view.sent if proven else now)
        decision = rules.decide(command, record, dead, stamp)
        verdict, new = decision.verdict, decision.record
        if not proven and (new is None or type(verdict) not in _PROVEN_BY_SWAP):
            view = None
            continue
        if new is None:
            if type(verdict) is Granted:  # written by an attempt that was said to have failed
                attempt.touched = True
            return verdict, view
        if new.fence > LARGEST_FENCE:
            raise corrupt(key, Entry(record))
        touched_before, unsettled_before = attempt.touched, attempt.unsettled
        attempt.sent[beat] = now
        attempt.touched = attempt.unsettled = True
        try:
            outcome, got = yield from Swap(key, view.version, new, decision.wake)
        except OutcomeUnknown:
            attempt.doubted, attempt.expected = True, view.version
            observations.forget(key)
            if unanswered:  # twice in a row: whoever called knows how long to go on
                raise
            unanswered = True
            view = None
            now = yield from NOW
            continue
        except HoldfastError as trouble:
            attempt.touched, attempt.unsettled = touched_before, unsettled_before
            raise worst_known_outcome(trouble, attempt) from trouble.__cause__
        attempt.unsettled = False
        if isinstance(outcome, Swapped):
            view = View(outcome.now, now, got, new, outcome.version)
            observations.wrote(key, view)
            return verdict, view
        attempt.touched = touched_before or attempt.shows_in(outcome.entry.record)
        observations.forget(key)
        refusals = refusals + 1 if outcome.entry.version == view.version else 0
        if refusals > MOST_REFUSALS:
            raise _not_written(key)
        view, proven = _view(observations, key, outcome.entry, now, got), True
        now = got
        conflicts += 1
        if conflicts > CONFLICTS_AT_FULL_SPEED:
            doublings = conflicts - CONFLICTS_AT_FULL_SPEED if type(verdict) is Blocked else 0
            yield from _step_back_steps(FIRST_PAUSE << min(doublings, MOST_DOUBLINGS))
            now, view = (yield from NOW), None  # what was seen before the pause is old by now


def _script_steps(
    observations: Observations, attempt: Attempt, command: Command, now: Micros
) -> Steps[Answer]:
    """The same in one trip, where the store knows the rules itself."""
    cut_off = False
    while True:
        beat, attempt.next_beat = attempt.next_beat, ""
        if not beat:
            beat = yield from Draw(BEAT_BYTES)
        touched_before, unsettled_before = attempt.touched, attempt.unsettled
        attempt.sent[beat] = now
        attempt.touched = attempt.unsettled = True
        try:
            applied, got = yield from Apply(attempt.key, command, beat)
        except OutcomeUnknown:
            attempt.doubted = True
            sent, now = now, (yield from NOW)
            if cut_off or now - sent > CUT_OFF_WITHIN:
                raise
            cut_off = True
        except HoldfastError as trouble:
            attempt.touched, attempt.unsettled = touched_before, unsettled_before
            raise worst_known_outcome(trouble, attempt) from trouble.__cause__
        else:
            attempt.unsettled = False
            view = View(applied.now, now, got, EMPTY, applied.version)
            observations.read_clock(view)
            return applied.verdict, view


def worst_known_outcome(trouble: HoldfastError, attempt: Attempt) -> HoldfastError:
    """`Unavailable` and `Misconfigured` say that nothing was done; say it only if that is known.
    (`CorruptRecord` is about what is there, not about what was done.)"""
    says_not_done = isinstance(trouble, (Unavailable, Misconfigured))
    if not attempt.unsettled or not says_not_done or isinstance(trouble, CorruptRecord):
        return trouble
    return OutcomeUnknown(f"It is not known whether the request got through: {trouble}")


def _step_back_steps(at_most: Micros) -> Steps[None]:
    """Sleep for a random part of this."""
    drawn = yield from Draw(2)
    yield from Sleep(int(drawn, 16) * at_most >> 16)


# --- ending a hold ----------------------------------------------------------------------------


def release_steps(
    observations: Observations, attempt: Attempt, now: Micros, until: Micros
) -> Steps[bool]:
    """Free a hold. False: there was nothing left to free.

    The caller has ended the hold before, so that no beat outlives the release.
    """
    try:
        verdict, _ = yield from apply_steps(observations, attempt, attempt.command, now)
    except (Unavailable, OutcomeUnknown):
        verdict, _ = yield from _retry_command_steps(observations, attempt, "release", until)
    return type(verdict) is Freed or attempt.doubted


def undo_steps(
    observations: Observations, attempts: Iterable[Attempt], until: Micros
) -> Steps[None]:
    """Take out of the store whatever these attempts may have left there."""
    for attempt in attempts:
        for token in attempt.leftovers():
            free = Attempt(attempt.key, Free(token), NO_BEAT)
            yield from _retry_command_steps(observations, free, "clean up", until)
        attempt.touched = False


def _retry_command_steps(
    observations: Observations, attempt: Attempt, doing: str, until: Micros
) -> Steps[Answer]:
    """Carry out an attempt's command, again and again while the store is in trouble."""
    return (
        yield from _retry_until_steps(
            lambda now: apply_steps(observations, attempt, attempt.command, now),
            attempt,
            doing,
            until,
        )
    )


def _retry_until_steps(
    make_steps: Callable[[Micros], Steps[R]], attempt: Attempt, doing: str, until: Micros
) -> Steps[R]:
    """Take steps again and again while the store is in trouble."""
    pause = FIRST_PAUSE
    while True:
        now = yield from NOW
        try:
            return (yield from make_steps(now))
        except (Unavailable, OutcomeUnknown) as trouble:
            now = yield from NOW
            if now + pause >= until:
                raise
            reason = str(trouble)
        yield from Emit(StoreTrouble(attempt.key, reason, doing))
        yield from Sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


# --- two parties ----------------------------------------------------------------------------


def enter_steps(
    observations: Observations, attempt: Attempt, care: Care, until: Micros
) -> Steps[Hold]:
    """Use a ticket: join a shared lease (`Renew`) or take an offered one (`Take`)."""
    verdict, view = yield from _retry_command_steps(observations, attempt, "use a ticket", until)
    if isinstance(verdict, Granted):
        hold = hold_of(attempt.key, verdict, attempt.sent_at(verdict.holder.beat), care)
        if hold.valid(view.got):
            return hold
    raise (yield from _refused_steps(observations, attempt.key))


def _refused_steps(observations: Observations, key: str) -> Steps[TicketRefused]:
    """What to raise about a ticket of no use, with who has the lock instead if that is seen."""
    holders: tuple[Holder, ...] = ()
    now = "the store did not say who holds it now"
    try:
        view = yield from look_steps(observations, key)
    except HoldfastError:
        pass
    else:
        holders = rules.alive(view.record.holders, observations.dead_when_asked(key, view))
        owners = ", ".join(sorted({holder.owner for holder in holders}))
        now = f"it is held by {owners} now" if holders else "nobody holds it now"
    return TicketRefused(
        f"The ticket for {key!r} is of no use any more: the lease was released, evicted or "
        f"lost, or the ticket was used before; {now}. Do not start the work.",
        key=key,
        holders=[anonymous(holder) for holder in holders],
    )


def offer_steps(observations: Observations, attempt: Attempt, until: Micros) -> Steps[None]:
    """Give a hold up for whoever brings the ticket. The caller has ended the hold before."""
    verdict, _ = yield from _retry_command_steps(observations, attempt, "hand over", until)
    if not isinstance(verdict, Granted):
        raise LeaseLost(
            f"The lease on {attempt.key!r} cannot be handed over: it is lost.", key=attempt.key
        )


# --- operators ------------------------------------------------------------------------------


def evict_steps(
    observations: Observations, key: str, fence: int | None, until: Micros
) -> Steps[Evicted]:
    """Throw out who holds now (or only the one with this fence); who they were.

    Who is to go is settled by the first look, so that however often the word is given, nobody
    goes who came after it, and all are told of though the answer was lost. (So is somebody who
    went by itself between the look and the word.) A record that cannot be read is replaced by
    an empty one, unless a later release wrote it.
    """
    attempt = Attempt(key, Evict(()))
    try:
        view = yield from _retry_until_steps(
            lambda now: look_steps(observations, key), attempt, "evict", until
        )
        if view.record.fence >= LARGEST_FENCE:
            raise corrupt(key, Entry(view.record))
        out = tuple(h for h in view.record.holders if fence is None or h.fence == fence)
        if out:
            attempt.command = Evict(tuple(holder.fence for holder in out))
            yield from _retry_command_steps(observations, attempt, "evict", until)
    except CorruptRecord as unusable:
        if unusable.newer:
            raise
        yield from _retry_until_steps(
            lambda now: _replace_corrupt_steps(observations, attempt), attempt, "evict", until
        )
        return Evicted(())
    return Evicted(out)


def _replace_corrupt_steps(observations: Observations, attempt: Attempt) -> Steps[None]:
    key = attempt.key
    try:
        entry, sent, got = yield from Load(key)
        attempt.saw_version(entry.version)
        if entry.newer:
            raise corrupt(key, entry)
        if entry.fault is None and entry.record.fence < LARGEST_FENCE:
            return
        observations.read_clock(Reading(entry.now, sent, got))
        at = entry.now.latest if entry.now is not None else (yield from WALL)
        attempt.expected = entry.version
        yield from Swap(key, entry.version, Record(fence=at, updated_at=at), ("*",))
    except OutcomeUnknown:
        attempt.unsettled = True
        raise
    except HoldfastError as trouble:
        raise worst_known_outcome(trouble, attempt) from trouble.__cause__
