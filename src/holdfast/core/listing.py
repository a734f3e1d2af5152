"""Looking at many locks: pages of a listing, and dropping what is long over."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core import rules
from holdfast.core.contract import Conflict, Entry, Interval
from holdfast.core.effects import NOW, Scan, Steps, Swap
from holdfast.core.records import SECOND, Holder, Micros, Record, Waiter, last_used
from holdfast.core.steps import look_steps
from holdfast.core.witness import View, Witness
from holdfast.errors import Unsupported

PAGE = 500
# A dropped record's fence starts again at the clock: stay clear of the clock's doubt.
SHORTEST_RETENTION: Micros = 60 * SECOND
_NO_CLOCK = (
    "This store has no clock that could carry the fence on after its record is dropped: "
    "leave the records, they are small."
)


class Sighting(Struct, frozen=True):
    """One lock as it was seen: who is alive in it, by the store's clock."""

    key: str
    fence: int
    holders: tuple[Holder, ...]
    waiters: tuple[Waiter, ...]
    now: Interval | None
    fault: str | None = None


class Sightings(Struct, frozen=True):
    """A page of them; `cursor` asks for the next."""

    locks: tuple[Sighting, ...]
    cursor: str | None


def show_steps(witness: Witness, key: str) -> Steps[Sighting]:
    """Look at one lock."""
    view = yield from look_steps(witness, key)
    return show_view(witness, key, view)


def show_view(witness: Witness, key: str, view: View) -> Sighting:
    """Who is alive in a record that was just loaded."""
    dead = witness.dead(key, view.now, view.got)
    return _sighting(key, view.record, view.now, dead)


def list_steps(witness: Witness, prefix: str, cursor: str | None) -> Steps[Sightings]:
    """Look at a page of locks, the free ones too."""
    sent = yield from NOW
    page = yield from Scan(prefix, cursor, PAGE)
    got = yield from NOW
    locks = tuple(_from_scan(witness, key, entry, sent, got) for key, entry in page.entries)
    return Sightings(locks, page.cursor)


def _from_scan(witness: Witness, key: str, entry: Entry, sent: Micros, got: Micros) -> Sighting:
    if entry.fault is not None:
        return Sighting(key, 0, (), (), entry.now, entry.fault)
    return show_view(witness, key, witness.saw(key, entry, sent, got))


def _sighting(key: str, record: Record, now: Interval | None, dead: rules.Dead) -> Sighting:
    holders = rules.alive(record.holders, dead)
    return Sighting(key, record.fence, holders, rules.alive(record.queue, dead), now)


class Purged(Struct, frozen=True):
    """How many records a page of a purge dropped, and where to go on."""

    dropped: int
    cursor: str | None


def _long_over(record: Record, before: Micros) -> bool:
    """Whether nobody has used this since then. Who was written without a reading of the
    store's clock may be alive, whatever the record says of the time: leave it."""
    parties: tuple[rules.Party, ...] = (*record.holders, *record.queue)
    return last_used(record) < before and all(party.expires_at for party in parties)


def purge_steps(
    witness: Witness, prefix: str, cursor: str | None, retention: Micros
) -> Steps[Purged]:
    """Drop the records of a page that nobody has used for the retention time."""
    if witness.facts.clock == "observed":
        raise Unsupported(_NO_CLOCK)
    page = yield from Scan(prefix, cursor, PAGE)
    dropped = 0
    for key, entry in page.entries:
        if entry.fault is not None:
            continue
        if entry.now is None:
            raise Unsupported(_NO_CLOCK)
        if _long_over(entry.record, entry.now.earliest - retention):
            outcome, _ = yield from Swap(key, entry.version, None)
            dropped += not isinstance(outcome, Conflict)
            witness.forget(key)
    return Purged(dropped, page.cursor)
