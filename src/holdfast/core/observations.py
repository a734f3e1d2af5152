"""What one client has observed of its store: the clock, records, and how long a party was silent.

Observations are remembered here, and decisions are made elsewhere. One object serves all threads
of a client without a lock: entries are replaced whole, and a stale one costs a conflict, never
a lease.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from holdfast.core.contract import Entry, Facts, Interval, Version
from holdfast.core.records import EMPTY, LONGEST_TTL, RANGE, Micros, Record, Waiter
from holdfast.core.rules import Dead, Party
from holdfast.core.validity import RATE, UNREAD, Reading

# Enough for very many leases held by one client: what is forgotten costs a load at each beat.
REMEMBERED_KEYS = 16_384
# A load that comes a moment too early finds the party still alive: aim a little later.
AFTER_EXPIRY: Micros = 1000
# A party that has just freed a contended lock leaves it to the others for so long, where they have
# to poll: about as long as they sleep between their first polls.
STEP_BACK: Micros = 30_000
# It does so this many times in a row without a new sign that others want the lock. (A place in the
# queue is a sign.) A waiter without a place looks at least once within that time.
STEPS_BACK = 5
# The last reading of the clock may lag behind by so much when a record is presumed not to exist.
# The fence then counts from that reading: if somebody else was granted the lock within that time,
# and the record was lost, the fence would not grow. It is as long as the range of fences, for which
# the same is true.
MOST_LAG: Micros = RANGE
_NOTHING: dict[tuple[str, str], Micros] = {}


def _unknown(token: str) -> bool:
    return False


def _drop_oldest(memory: dict[str, Any]) -> None:
    with suppress(StopIteration, RuntimeError):  # another thread was faster, and made room
        memory.pop(next(iter(memory)), None)


class View(Reading, frozen=True, gc=False):
    """A record as this client saw it last, with the reading of the clock in the same reply."""

    record: Record
    version: Version


class _Judge(Struct, frozen=True, gc=False):
    """Says which parties have expired. A class, because a closure takes five times as long to
    make, and most records have no party to be judged."""

    now: Interval | None
    m: Micros
    silent_since: dict[tuple[str, str], Micros]

    def __call__(self, party: Party) -> bool:
        now, expires_at = self.now, party.expires_at
        if now is not None and expires_at:
            return now.earliest > expires_at or _is_impossible(party, expires_at - now.latest)
        silent = self.m - self.silent_since.get((party.token, party.beat), self.m)
        return silent > party.ttl or _is_impossible(party, party.ttl)


def _is_impossible(party: Party, lasts: Micros) -> bool:
    """Whether a place in the queue would last longer than the longest ttl. It was forged, or the
    clock has jumped, and must not hold up those behind it. (A holder is never judged by this.)"""
    return lasts > LONGEST_TTL and type(party) is Waiter


class Observations:
    """What one client remembers of its store."""

    __slots__ = (
        *("_back_at", "_observed", "_steps_back", "_views"),
        *("awaits", "contended", "facts", "keys_are_new", "reached", "reading", "recall"),
    )

    def __init__(self, facts: Facts, awaits: Callable[[str], bool] = _unknown) -> None:
        """`awaits` says whether a call surely waits with this token at this moment, as far as that
        can be told without a request."""
        self.facts = facts
        self.awaits = awaits
        self.reading: Reading = UNREAD  # the last reading of the store's clock
        self.reached: Micros | None = None  # a time that the store's clock has surely shown
        self._views: dict[str, View] = {}
        self.recall = self._views.get  # a record as we wrote it last, if we have it
        self.keys_are_new = False  # the last key that we did not remember had no record
        # Keys that others want too, each for so many releases without a new sign of them.
        self.contended: dict[str, int] = {}
        self._steps_back = facts.wakeup == "poll" and not facts.cheap_places
        self._back_at: dict[str, Micros] = {}  # until when contended keys are left to others
        self._observed: dict[str, dict[tuple[str, str], Micros]] = {}

    # --- the clock ------------------------------------------------------------------------

    def read_clock(self, reading: Reading) -> None:
        """Note the reading of the store's clock in a reply, if it has one."""
        if reading.now is not None:
            self.reading = reading

    # --- records --------------------------------------------------------------------------

    def saw(self, key: str, entry: Entry, sent: Micros, got: Micros) -> View:
        """Note what a reply showed. Returns it as a view."""
        view = View(entry.now, sent, got, entry.record, entry.version)
        self.read_clock(view)
        reached = entry.reached if entry.now is None else entry.now.earliest
        if reached is not None and (self.reached is None or reached > self.reached):
            self.reached = reached
        self._observe(key, entry.record, entry.now, got)
        return view

    def wrote(self, key: str, view: View) -> None:
        """Remember what a swap of ours has written: the next swap needs no load."""
        if view.now is not None:
            self.reading = view
        if self.contended and not view.record.holders and key in self.contended:
            # Another client waits for it and will have it before we want it again.
            if not view.record.queue:
                self._one_sign_less(key)
            self.forget(key)
            if self._steps_back:
                self._back_at[key] = view.got + STEP_BACK
                if len(self._back_at) > REMEMBERED_KEYS:
                    _drop_oldest(self._back_at)
        else:
            self.remember(key, view)

    def contend(self, key: str) -> None:
        """Note that others want this key too: a claim of ours has to wait, or a swap failed."""
        if not self.facts.scripted:
            self.contended[key] = STEPS_BACK if self._steps_back else 1
            if len(self.contended) > REMEMBERED_KEYS:
                _drop_oldest(self.contended)

    def _one_sign_less(self, key: str) -> None:
        """Another release has shown nobody in the queue."""
        left = self.contended.pop(key, 0) - 1
        if left > 0:
            self.contended[key] = left

    def steps_back_until(self, key: str) -> Micros:
        """Returns until when to leave this key to others, because we have just had it and they
        wanted it too; 0 mostly. Where nobody is told of a free lock and the queue is for long
        waits, the party that frees the lock would have it again before the others have looked."""
        return self._back_at.pop(key, 0) if self._back_at else 0

    def can_amend(self, now: Micros) -> bool:
        """Whether to amend keys that others want too, because a swap would often fail. Not without
        any reading of the clock, which the store then may be unable to give."""
        return self.facts.amends and self.reading.stamp(now, "") is not None

    def __contains__(self, key: str) -> bool:
        """Whether the record of this key is remembered."""
        return key in self._views

    def expect(self, key: str, entry: Entry, got: Micros) -> None:
        """Remember what a notification showed."""
        if entry.fault is None:
            self.remember(key, View(entry.now, got, got, entry.record, entry.version))

    def remember(self, key: str, view: View) -> None:
        """Let the next swap rely on a record that we were shown: the swap proves it."""
        views = self._views
        views[key] = view
        if len(views) > REMEMBERED_KEYS:
            _drop_oldest(views)

    def presume(self, key: str, now: Micros) -> View | None:
        """Returns what a claim may presume of a key that is not remembered, instead of a look: that
        there is no record, if it was so with the key before. A swap proves it."""
        reading = self.reading
        if not self.keys_are_new or reading.now is None or key in self.contended:
            return None
        # The trip of the reading, and what two clocks that are wrong by 1 in `RATE` can differ.
        if reading.got - reading.sent + 2 * (now - reading.got) // RATE >= MOST_LAG:
            return None
        return View(reading.now, reading.sent, reading.got, EMPTY, None)

    def forget(self, key: str) -> None:
        """Forget the record of this key: it has changed."""
        self._views.pop(key, None)

    # --- the dead -------------------------------------------------------------------------

    def dead(self, key: str, now: Interval | None, m: Micros) -> Dead:
        """Returns who has expired, by the store's clock or by silence until local time `m`. Good
        for a write, whose swap proves that the record has not changed since it was read."""
        return _Judge(now, m, self._observed.get(key, _NOTHING))

    def dead_when_asked(self, key: str, view: View) -> Dead:
        """Returns who had expired when the request for this record left. The record was read at
        some moment after that, and its clock perhaps later still: a party may have renewed
        before the reply came, so an answer without a write goes by the time of the request."""
        now = view.now
        if now is not None:
            took = view.got - view.sent
            now = Interval(now.earliest - took - took // RATE - 1, now.latest)
        return self.dead(key, now, view.sent)

    def dead_from(self, key: str, party: Party, now: Interval | None, got: Micros) -> Micros:
        """Returns the local time from which on a load can find this party expired."""
        if now is not None and party.expires_at:
            soon = (now.latest - now.earliest) // 4  # a slow clock shows nothing new at once
            rest = max(soon, party.expires_at - now.earliest)
            return got + rest + rest // RATE + AFTER_EXPIRY
        since = self._observed.get(key, {}).get((party.token, party.beat), got)
        return since + party.ttl + AFTER_EXPIRY

    def _observe(self, key: str, record: Record, now: Interval | None, got: Micros) -> None:
        """Note the parties that the clock cannot judge, and since when each was silent."""
        parties: tuple[Party, ...] = (*record.holders, *record.queue)
        silent = [
            (party.token, party.beat) for party in parties if now is None or not party.expires_at
        ]
        before = self._observed.pop(key, {})
        if silent:
            if len(self._observed) >= REMEMBERED_KEYS:
                _drop_oldest(self._observed)
            self._observed[key] = {party: before.get(party, got) for party in silent}
