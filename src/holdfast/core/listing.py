"""Showing one lock, listing many in pages, and purging records that nobody has used for long."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core import rules
from holdfast.core.contract import Conflict, Entry, Interval
from holdfast.core.effects import NOW, Scan, Steps, Swap
from holdfast.core.observations import Observations, View
from holdfast.core.records import (
    NEVER,
    SECOND,
    Happening,
    Holder,
    Micros,
    Record,
    Waiter,
    ended,
    last_used,
)
from holdfast.core.steps import look_steps
from holdfast.errors import Misconfigured, OutcomeUnknown, Unavailable, Unsupported

PAGE = 500
# A dropped record's fence starts again at the clock: stay clear of the clock's doubt.
SHORTEST_RETENTION: Micros = 60 * SECOND
_NO_CLOCK = (
    "This store has no clock, so only its records keep the fences growing: leave "
    "them, they are small."
)


class LockView(Struct, frozen=True):
    """One lock as it was seen, without the parties that had expired."""

    key: str
    fence: int
    holders: tuple[Holder, ...]
    waiters: tuple[Waiter, ...]
    now: Interval | None
    fault: str | None = None
    history: tuple[Happening, ...] = ()


class LockPage(Struct, frozen=True):
    """A page of a listing; `cursor` asks for the next page, None ends it."""

    locks: tuple[LockView, ...]
    cursor: str | None


def show_steps(observations: Observations, key: str, by: Micros = NEVER) -> Steps[LockView]:
    """Load one lock. Returns who holds it and who waits."""
    view = yield from look_steps(observations, key, by)
    return show_view(observations, key, view)


def show_view(observations: Observations, key: str, view: View) -> LockView:
    """Returns the lock of a record that was just loaded."""
    return _sighting(key, view.record, view.now, observations.dead_when_asked(key, view))


def list_steps(observations: Observations, prefix: str, cursor: str | None) -> Steps[LockPage]:
    """Load a page of locks, including the free ones."""
    sent = yield from NOW
    page = yield from Scan(prefix, cursor, PAGE)
    got = yield from NOW
    locks = tuple(_from_scan(observations, key, entry, sent, got) for key, entry in page.entries)
    return LockPage(locks, page.cursor)


def _from_scan(
    observations: Observations, key: str, entry: Entry, sent: Micros, got: Micros
) -> LockView:
    if entry.fault is not None:
        return LockView(key, 0, (), (), entry.now, entry.fault)
    return show_view(observations, key, observations.saw(key, entry, sent, got))


def _sighting(key: str, record: Record, now: Interval | None, dead: rules.Dead) -> LockView:
    holders = rules.alive(record.holders, dead)
    waiters = rules.alive(record.queue, dead)
    # The next write notes in the record who ran out. Until then only this shows it.
    gone = (holder for holder in record.holders if holder not in holders)
    history = record.remembering(*(ended(one, "expired", _ran_out_at(one)) for one in gone)) or ()
    return LockView(key, record.fence, holders, waiters, now, history=history)


def _ran_out_at(holder: Holder) -> Micros:
    """Returns when a dead holder ran out; where the store has no clock, when it could have at the
    earliest."""
    return holder.expires_at or holder.acquired_at + holder.ttl


class Purged(Struct, frozen=True):
    """How many records a purge has dropped so far, and where to go on."""

    dropped: int
    cursor: str | None


def _long_over(record: Record, before: Micros) -> bool:
    """Whether nobody has used this record since then. A party that was written without a reading
    of the store's clock may be alive whatever its times say: such a record stays."""
    parties: tuple[rules.Party, ...] = (*record.holders, *record.queue)
    return last_used(record) < before and all(party.expires_at for party in parties)


def purge_steps(
    observations: Observations, prefix: str, so_far: Purged, retention: Micros
) -> Steps[Purged]:
    """Drop the records of the next page that nobody has used for the retention time."""
    if observations.facts.clock == "observed":
        raise Unsupported(_NO_CLOCK)
    dropped = so_far.dropped
    try:
        page = yield from Scan(prefix, so_far.cursor, PAGE)
        for key, entry in page.entries:
            if entry.fault is not None:
                continue
            if entry.now is None:
                raise Unsupported(_NO_CLOCK)
            if _long_over(entry.record, entry.now.earliest - retention):
                outcome, _ = yield from Swap(key, entry.version, None)
                dropped += not isinstance(outcome, Conflict)
                observations.forget(key)
    except (Unavailable, Misconfigured) as trouble:
        if not dropped:
            raise
        raise OutcomeUnknown(
            f"The purge ended early, after it had dropped {dropped} records: {trouble}"
        ) from trouble.__cause__
    return Purged(dropped, page.cursor)
