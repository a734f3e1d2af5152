"""The memory store: locks inside one process, for tests and for threads.

`memory://NAME` is the same store for everyone in the process who opens that name.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import (
    Amended,
    Change,
    Conflict,
    Entry,
    Facts,
    Interval,
    Page,
    Swapped,
    Version,
)
from holdfast.core.records import NEVER, Micros, Record, encode
from holdfast.errors import BadURL
from holdfast.runtime import clock, fork_hooks
from holdfast.stores.base import AsyncStore, Outcome, entry_from
from holdfast.stores.waiting.handles import Notify, NotifyingStore, WaitHandle, WaitHandles

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

# Every memory store of this process, for `holdfast.testing.hand_clock`.
everyone: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_named: dict[object, MemoryStore] = {}
_named_lock = threading.Lock()


@fork_hooks.in_child
def _in_child() -> None:
    """A forked child starts without stores: in a copy nobody would release the parent's leases."""
    global _named_lock
    _named.clear()
    _named_lock = threading.Lock()


class MemoryStore(NotifyingStore):
    """A dictionary of records. Nobody can change a record in it."""

    facts = Facts(
        name="memory", linearizable=True, clock="process", reach="process", wakeup="push",
        durable=False, native_async=True, amends=True, batch=1000,
        caveats=("Other processes do not see these locks; a restart forgets them.",),
    )  # fmt: skip

    def __init__(self, name: object = None) -> None:
        self._name = object() if name is None else name  # for all who share it, also in a child
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[Record | bytes, int]] = {}
        self._order: list[str] | None = []  # the keys in order; None: to be sorted again
        self._last_version = 0
        self._epoch = clock.wall() - clock.monotonic()
        self._waits = WaitHandles()
        everyone.add(self)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> MemoryStore:
        """`memory://` or `memory://NAME`."""
        if unknown := sorted({*url.options, *options}):
            raise BadURL(f"memory://NAME has no option {', '.join(unknown)}.")
        if url.path.strip("/"):
            raise BadURL("A memory store has a name and nothing else: memory://NAME")
        return cls._of_name(url.host)

    @classmethod
    def _of_name(cls, name: object) -> MemoryStore:
        with _named_lock:
            store = _named.get(name)
            if store is None:
                store = _named[name] = cls(name)
            return store

    def now(self) -> Interval:
        """Returns the store's time. It counts from the start of the store, so it never jumps."""
        at = self._epoch + clock.monotonic()
        return Interval(at, at)

    def wake_everybody(self) -> None:
        """Have all waiting calls look again, because the clock was moved by hand."""
        self._waits.notify_all()

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """Returns the record and the time."""
        row = self._rows.get(key)
        if row is None:
            return Entry(now=self.now())
        kept, version = row
        if isinstance(kept, Record):
            return Entry(kept, version, self.now())
        return entry_from(kept, version, self.now())

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Compare the version and write, under the store's lock."""
        kept = None if record is None else _fixed(record)
        with self._lock:
            row = self._rows.get(key)
            if version != (None if row is None else row[1]):
                return Conflict(self.load(key))
            written = self._write(key, kept)
            now = self.now()
        if wake:
            self._waits.notify(key, wake)
        return Swapped(written, now)

    def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """Look, decide and write under the store's lock."""
        with self._lock:
            entry = self.load(key)
            decision = change(entry)
            record = decision.record
            if record is not None:
                entry = Entry(record, self._write(key, _fixed(record)), entry.now)
        if decision.wake:
            self._waits.notify(key, decision.wake)
        return Amended(decision, entry)

    def _write(self, key: str, kept: Record | bytes | None) -> Version:
        """Keep a record, or none, and return its version. The caller has the lock."""
        self._last_version = new = self._last_version + 1
        if kept is None or key not in self._rows:
            self._order = None
        if kept is None:
            self._rows.pop(key, None)
            return None
        self._rows[key] = kept, new
        return new

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """Returns a page that starts after the cursor."""
        with self._lock:
            if self._order is None:
                self._order = sorted(self._rows)
            order = self._order
            first = bisect_left(order, prefix) if cursor is None else bisect_right(order, cursor)
            keys = [key for key in order[first : first + limit] if key.startswith(prefix)]
            entries = tuple((key, self.load(key)) for key in keys)
        return Page(entries, keys[-1] if len(keys) == limit else None)

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Notify the waiter of a write that may let it in, or at once if the version is another."""
        handle = WaitHandle(key, version, token, notify)
        self._waits.add(handle)
        row = self._rows.get(key)
        if version != (None if row is None else row[1]):
            notify()
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """Stop notifying the waiter."""
        self._waits.discard(handle)

    def close(self) -> None:
        """Make waiting calls return. The store stays for others who share its name."""
        self._waits.notify_all()

    def to_async(self) -> AsyncStore:
        """Returns a face that calls the store in place: nothing here blocks."""
        from holdfast.stores.async_adapters import InlineStore

        return InlineStore(self)

    def for_child(self) -> MemoryStore:
        """Returns an empty store, the same for all who shared this one."""
        return self._of_name(self._name)


def _fixed(record: Record) -> Record | bytes:
    """Returns a form of the record that nobody can change: a note is a dictionary, so a record
    with one is kept encoded."""
    for holder in record.holders:
        if holder.note:
            return encode(record)
    return record
