"""The store of a simulated world: a dictionary that keeps to the facts of its kind.

It is carried out at one instant, when a request arrives. Lateness, loss and repetition are
the network's business. Every write is told to the ledger with the record before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.commands import ANYONE, Command, Free, Stamp, Wake
from holdfast.core.contract import (
    Amended,
    Applied,
    Conflict,
    Entry,
    Inherited,
    Interval,
    Page,
    Swapped,
)
from holdfast.core.effects import Amend, Apply, ApplyMany, Load, Scan, Swap, SwapMany
from holdfast.core.records import EMPTY, SECOND, Record
from holdfast.stores.blob.codec import expiries_from, parties_of, with_expiries
from holdfast.stores.waiting.notices import inherited_by
from holdfast.testing.sim.clocks import Clock
from holdfast.testing.sim.kinds import StoreKind

if TYPE_CHECKING:
    from holdfast.testing.sim.ledger import Ledger
    from holdfast.testing.sim.ops import Op

Row = tuple[Record, int]
Notify = Callable[[Inherited | None], None]
Watcher = tuple[str, Notify]  # whose token, and how to wake it


class StoreModel:
    """One store, as all clients see it."""

    def __init__(self, kind: StoreKind, clock: Clock, rng: Random, ledger: Ledger) -> None:
        self.kind = kind
        self.clock = clock
        self.t = 0
        self.down_until = 0
        self.takes_over_at = 0  # a failover is not over before, even if all else is healed
        self.stalled_until = 0  # writes are not answered
        self.stalled_writes_are_lost = False
        self.rng = rng
        self._ledger = ledger
        self._rows: dict[str, Row] = {}
        self._dates: dict[str, Interval] = {}  # when each key was written, to the second
        self._journal: list[tuple[int, str, Row | None]] = []
        self._last_version = 0
        self._watchers: dict[str, list[Watcher]] = {}
        self.awaits: Callable[[str], bool] = lambda token: False
        self._late = self._again = False
        self._since = 0
        self._handlers: dict[type, Callable[[Any, Op], Any]] = {
            Load: lambda effect, op: self.entry(effect.key),
            Swap: self._swap,
            SwapMany: lambda effect, op: tuple(self._swap(swap, op) for swap in effect.swaps),
            Amend: self._amend,
            Apply: self._apply,
            ApplyMany: lambda effect, op: tuple(self._apply(one, op) for one in effect.applies),
            Scan: self._scan,
        }

    # --- requests -----------------------------------------------------------------------------

    def execute(
        self,
        effect: Any,
        op: Op,
        t: int,
        *,
        late: bool,
        again: bool = False,
        sent: int | None = None,
    ) -> Any:
        """Carry out a request now. `late`: whoever sent it has given up on it, or it is a
        repetition (`again`). `sent`: when it was sent, if that was earlier."""
        self.t, self._late, self._again = t, late, again
        self._since = t if sent is None else sent
        return self._handlers[type(effect)](effect, op)

    def now(self) -> Interval | None:
        """What a reply says about the time."""
        clock = self.kind.clock
        at = self.clock.at(self.t)
        if clock == "exact":
            return Interval(at, at)
        if clock == "none" or (clock == "patchy" and self.rng.random() < 0.3):
            return None
        return self._to_the_second()

    def read_clock_last(self, answer: Any, t: int) -> Any:
        """What a look has found, where the clock is read after the record: right before the
        reply comes, at the latest."""
        if self.kind.clock != "dated":
            return answer
        self.t = t
        if isinstance(answer, Page):
            return Page(
                tuple((key, self._dated_now(e)) for key, e in answer.entries), answer.cursor
            )
        return self._dated_now(answer) if isinstance(answer, Entry) else answer

    def _dated_now(self, entry: Entry) -> Entry:
        return entry if entry.now is None else replace(entry, now=self._to_the_second())

    def _to_the_second(self) -> Interval:
        at = self.clock.at(self.t)
        second = at - at % SECOND
        return Interval(second, second + SECOND - 1)

    def record(self, key: str) -> Record:
        """Returns the record, for checkers, which see everything."""
        row = self._rows.get(key)
        return EMPTY if row is None else row[0]

    def keys(self) -> list[str]:
        """The keys that have a record."""
        return sorted(self._rows)

    def entry(self, key: str) -> Entry:
        """What is there, as a reply."""
        row = self._rows.get(key)
        if row is None:
            return Entry(now=self.now())
        record, version = row
        if self.kind.clock == "dated" and not parties_of(record):
            return Entry(record, version, reached=self._dates[key].earliest)
        return Entry(record, version, self.now())

    def _swap(self, swap: Swap, op: Op) -> Swapped | Conflict:
        row = self._rows.get(swap.key)
        if self.kind.compares and swap.version != (None if row is None else row[1]):
            return Conflict(self.entry(swap.key))
        record, now = swap.record, self.now()
        if self.kind.clock == "dated":
            record = None if record is None else self._dated(swap.key, row, record)
            now = now if self.rng.random() < 0.5 else None  # whether it was read lately
        self._write(swap.key, row, record, swap.wake, op)
        return Swapped(self._last_version, now)

    def _dated(self, key: str, row: Row | None, record: Record) -> Record:
        """Those who were written without the time run out by the date of their write. A later
        write moves the object's date, but not theirs."""
        self._dates[key] = date = self._to_the_second()
        before = () if row is None else parties_of(row[0])
        known = {(party.token, party.beat): party.expires_at for party in before}
        return with_expiries(record, expiries_from(record, date) | known)

    def _amend(self, amend: Amend, op: Op) -> Amended:
        row, entry = self._rows.get(amend.key), self.entry(amend.key)
        if self.rng.random() < 0.5:  # the clock was read while it waited for another's lock
            at = self.clock.at(self.rng.randint(min(self._since, self.t), self.t))
            entry = replace(entry, now=Interval(at, at))
        decision = amend.change(entry)
        if decision.record is not None:
            self._write(amend.key, row, decision.record, decision.wake, op)
            entry = Entry(decision.record, self._last_version, entry.now)
        return Amended(decision, entry)

    def _apply(self, apply: Apply, op: Op) -> Applied:
        row = self._rows.get(apply.key)
        now = self.now()
        assert now is not None
        record = EMPTY if row is None else row[0]
        decision = rules.decide(
            self._naming_heir(apply.command, record),
            record,
            lambda party: now.earliest > party.expires_at,
            Stamp(now.latest, apply.beat),
        )
        if decision.record is not None:
            self._write(apply.key, row, decision.record, decision.wake, op)
        row = self._rows.get(apply.key)
        return Applied(decision.verdict, None if row is None else row[1], now)

    def _naming_heir(self, command: Command, record: Record) -> Command:
        """The server itself knows whose connections are open."""
        first = record.queue[0] if record.queue else None
        if type(command) is not Free or first is None or first.lease is None:
            return command
        return Free(command.token, first.token) if self.awaits(first.token) else command

    def _scan(self, scan: Scan, op: Op) -> Page:
        keys = [key for key in self.keys() if key.startswith(scan.prefix)]
        if scan.cursor is not None:
            keys = [key for key in keys if key > scan.cursor]
        page = keys[: scan.limit]
        more = page[-1] if len(keys) > len(page) else None
        entries = tuple((key, replace(self.entry(key), now=self.now())) for key in page)
        return Page(entries, more)

    def _write(self, key: str, row: Row | None, record: Record | None, wake: Wake, op: Op) -> None:
        self._last_version += 1
        if self.kind.replicated:
            self._journal.append((self.t, key, row))
        if record is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = record, self._last_version
        before = EMPTY if row is None else row[0]
        self._ledger.landed(key, before, record, op, late=self._late, again=self._again)
        if wake and key in self._watchers:
            self._notify(key, wake)

    # --- waiting ------------------------------------------------------------------------------

    def watch(self, key: str, version: Any, token: str, notify: Notify) -> None:
        """Notify a watcher once: when a write says so, or at once if one came before."""
        row = self._rows.get(key)
        if version != (None if row is None else row[1]):
            notify(None)
        else:
            self._watchers.setdefault(key, []).append((token, notify))

    def _notify(self, key: str, wake: Wake) -> None:
        stay = []
        for token, notify in self._watchers.pop(key):
            if wake == ANYONE or token in wake:
                notify(inherited_by(self.record(key), token))
            else:
                stay.append((token, notify))
        if stay:
            self._watchers[key] = stay

    def hang_up(self) -> None:
        """End all connections: every waiter looks again."""
        for key in list(self._watchers):
            self._notify(key, ANYONE)

    # --- failover -----------------------------------------------------------------------------

    def fail_over(self, since: int) -> int:
        """Let a replica take over that lacks the writes since then. Returns how many it lacks."""
        lost = 0
        before = dict(self._rows)
        while self._journal and self._journal[-1][0] >= since:
            _, key, row = self._journal.pop()
            lost += 1
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        for key in sorted(before):
            if self._rows.get(key) != before[key]:
                self._ledger.rolled_back(before[key][0], self.record(key))
        return lost
