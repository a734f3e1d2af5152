"""What one client has seen of its store: clock, records, and who was silent how long.

It only remembers; it decides nothing by itself. One witness serves all threads of a
client: entries are replaced whole, and a stale one costs a conflict, never a lock.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import Struct

from holdfast.core.contract import Entry, Facts, Interval, Version
from holdfast.core.records import Micros, Record
from holdfast.core.rules import Dead, Party
from holdfast.core.validity import RATE, UNREAD, Reading

# Enough for very many leases held by one client: what is forgotten costs a load at each beat.
REMEMBERED_KEYS = 16_384
# A look that comes too early finds the party still alive: aim a little later.
AFTER_EXPIRY: Micros = 1000
_NOTHING: dict[tuple[str, str], Micros] = {}


def _drop_oldest(memory: dict[str, Any]) -> None:
    with suppress(StopIteration, RuntimeError):  # another thread was faster, and made room
        memory.pop(next(iter(memory)), None)


class View(Reading, frozen=True, gc=False):
    """A record as this client saw it last, with the reading of the clock in the same reply."""

    record: Record
    version: Version


class _Judge(Struct, frozen=True, gc=False):
    """Who is dead. Not a function inside of another one: that takes five times as long to make,
    and most records have nobody in them to be judged."""

    now: Interval | None
    m: Micros
    silent_since: dict[tuple[str, str], Micros]

    def __call__(self, party: Party) -> bool:
        if self.now is not None and party.expires_at:
            return self.now.earliest > party.expires_at
        return self.m - self.silent_since.get((party.token, party.beat), self.m) > party.ttl


class Observations:
    """The memory of one client."""

    __slots__ = ("_contended", "_observed", "_views", "facts", "reached", "reading", "recall")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.reading: Reading = UNREAD  # of its clock, the last one
        self.reached: Micros | None = None  # what its clock has surely shown already
        self._views: dict[str, View] = {}
        self.recall = self._views.get  # a record as we wrote it last, if we have it
        self._contended: dict[str, None] = {}  # keys that we had to wait for
        self._observed: dict[str, dict[tuple[str, str], Micros]] = {}

    # --- the clock ------------------------------------------------------------------------

    def read_clock(self, reading: Reading) -> None:
        """A reply came, and may have brought the store's time."""
        if reading.now is not None:
            self.reading = reading

    # --- records --------------------------------------------------------------------------

    def saw(self, key: str, entry: Entry, sent: Micros, got: Micros) -> View:
        """A reply showed a record."""
        view = View(entry.now, sent, got, entry.record, entry.version)
        self.read_clock(view)
        reached = entry.reached if entry.now is None else entry.now.earliest
        if reached is not None and (self.reached is None or reached > self.reached):
            self.reached = reached
        self._observe(key, entry.record, entry.now, got)
        return view

    def wrote(self, key: str, view: View) -> None:
        """A swap of ours was done: the next one can go without a load."""
        if view.now is not None:
            self.reading = view
        if self._contended and not view.record.holders and key in self._contended:
            # Somebody else will have it before we are back.
            self._contended.pop(key, None)
            self.forget(key)
        else:
            self._remember(key, view)

    def contend(self, key: str) -> None:
        """We have to wait for this one."""
        if not self.facts.scripted:
            self._contended[key] = None
            if len(self._contended) > REMEMBERED_KEYS:
                _drop_oldest(self._contended)

    def expect(self, key: str, entry: Entry, got: Micros) -> None:
        """A wake-up showed a record: a swap may go without a load, and will prove it."""
        if entry.fault is None:
            self._remember(key, View(entry.now, got, got, entry.record, entry.version))

    def _remember(self, key: str, view: View) -> None:
        views = self._views
        views[key] = view
        if len(views) > REMEMBERED_KEYS:
            _drop_oldest(views)

    def forget(self, key: str) -> None:
        """What we knew of this record is no longer so."""
        self._views.pop(key, None)

    # --- the dead -------------------------------------------------------------------------

    def dead(self, key: str, now: Interval | None, m: Micros) -> Dead:
        """Who has run out, by the store's clock or by their silence until local time `m`. Good
        for a write, whose swap proves that nothing has changed since the record was read."""
        return _Judge(now, m, self._observed.get(key, _NOTHING))

    def dead_when_asked(self, key: str, view: View) -> Dead:
        """Who had run out already when the request for this record left. The record was read at
        some moment after that, and its clock perhaps later still: a party may have renewed
        before the reply came, so an answer without a write goes by the time of the request."""
        now = view.now
        if now is not None:
            took = view.got - view.sent
            now = Interval(now.earliest - took - took // RATE - 1, now.latest)
        return self.dead(key, now, view.sent)

    def dead_from(self, key: str, party: Party, now: Interval | None, got: Micros) -> Micros:
        """The local time at which a new look can find this party dead."""
        if now is not None and party.expires_at:
            soon = (now.latest - now.earliest) // 4  # a slow clock shows nothing new at once
            rest = max(soon, party.expires_at - now.earliest)
            return got + rest + rest // RATE + AFTER_EXPIRY
        since = self._observed.get(key, {}).get((party.token, party.beat), got)
        return since + party.ttl + AFTER_EXPIRY

    def _observe(self, key: str, record: Record, now: Interval | None, got: Micros) -> None:
        """Note whom the clock cannot judge, and since when they have been silent."""
        parties: tuple[Party, ...] = (*record.holders, *record.queue)
        silent = [
            (party.token, party.beat) for party in parties if now is None or not party.expires_at
        ]
        before = self._observed.pop(key, {})
        if silent:
            if len(self._observed) >= REMEMBERED_KEYS:
                _drop_oldest(self._observed)
            self._observed[key] = {party: before.get(party, got) for party in silent}
