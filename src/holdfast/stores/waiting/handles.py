"""Waiting calls of this process, by key, and the stores that notify them.

A waiting call registers a `WaitHandle` under its key, and blocks (a thread) or awaits (a task)
until the store calls `handle.notify`, or until its time is over. A notification is only a hint
that the key may have changed: the caller loads the record again, unless `handle.found` shows it.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast.core.commands import ANYONE, NOBODY, Wake
from holdfast.core.contract import Entry, Found, Version
from holdfast.core.records import SECOND, Micros, Record
from holdfast.core.rules import find, next_up, nobody
from holdfast.stores import spin
from holdfast.stores.base import Store
from holdfast.stores.waiting.notices import inherited_by

Notify = Callable[[], object]


def started(run: Callable[[], None], name: str) -> bool:
    """Start a daemon thread that notifies waiting calls. Returns False if the process cannot have
    another thread: then calls wait for their whole time, and the next one tries again."""
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


class WaitHandle:
    """One waiting call. `notify` may be called from any thread, more than once."""

    __slots__ = ("found", "key", "mark", "notify", "token", "version")

    def __init__(self, key: str, version: Version, token: str, notify: Notify) -> None:
        self.key = key
        self.version = version
        self.token = token
        self.notify = notify
        self.mark: Any = None  # for the store's own use
        self.found: Found = None  # what the notification has shown, or brought along


class PollResult(Struct, frozen=True):
    """What a poll on behalf of waiting calls has shown of one key."""

    version: Version = None
    turn: Any = None  # changes with the writes that may let somebody in
    found: Entry | None = None  # as a load would have shown it, if it is known
    taken: bool = False


def poll_result(entry: Entry, turn: Any) -> PollResult:
    """Returns the result of a poll that has read the whole record."""
    return PollResult(entry.version, turn, entry, is_taken(entry))


def is_taken(entry: Entry) -> bool:
    """Whether an exclusive holder keeps everybody out, whatever they want."""
    return any(holder.mode == "exclusive" for holder in entry.record.holders)


def lets_in(handle: WaitHandle, seen: PollResult | None) -> bool:
    """Whether a poll's result (None: there is no record) may let this waiting call in.

    The first poll for a handle compares the version, later ones only the turn. A lock that is
    taken again already lets nobody in: a caller that was notified now would come in vain and slow
    the holder down. (A caller that waits for the holder to expire has a timer of its own.)
    """
    seen = seen or PollResult()
    before, handle.mark = handle.mark, (seen.turn,)
    changed = handle.mark != before if before else seen.version != handle.version
    if not changed or not (_is_heir(handle, seen.found) or _may_claim(handle, seen)):
        return False
    handle.found = seen.found
    return True


def _may_claim(handle: WaitHandle, seen: PollResult) -> bool:
    return not seen.taken and _is_up(handle, seen.found)


def _is_heir(handle: WaitHandle, found: Entry | None) -> bool:
    """Whether this call has the lock already: it was granted to its place in the queue."""
    return found is not None and find(found.record.holders, handle.token) is not None


def _is_up(handle: WaitHandle, found: Entry | None) -> bool:
    """Whether no place in the queue comes before this call's own, if it has one. (If those before
    it are dead, its own timer tells it.)"""
    if found is None or find(found.record.queue, handle.token) is None:
        return True
    return handle.token in next_up(found.record, nobody)


# No more calls than this can load a record before a notification and register after it.
MOST_LATE = 100


class LastHeard:
    """The newest version that a notification named for a key. By it, a call that loaded the record
    before the notification and registers after it is notified at once.

    A notification can come from anybody, and its version may not exist. When `MOST_LATE` calls
    have missed the same version, it counts as false and is forgotten: otherwise waiting calls would
    load the record again and again. Callers bring their own lock.
    """

    __slots__ = ("_late", "version")

    def __init__(self) -> None:
        self.version = 0
        self._late = 0

    def hear(self, version: int) -> None:
        """Note that a notification has named this version."""
        if version > self.version:
            self.version, self._late = version, 0

    def missed_by(self, version: int) -> bool:
        """Whether a call that registers now, and has loaded this version, missed a later one."""
        if self.version <= version:
            return False
        self._late += 1
        if self._late > MOST_LATE:
            self.version = 0
        return self.version > version


class WaitHandles:
    """All waiting calls by key. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, set[WaitHandle]] = {}

    def add(self, handle: WaitHandle) -> None:
        """Register a waiting call."""
        with self._lock:
            self._by_key.setdefault(handle.key, set()).add(handle)

    def discard(self, handle: WaitHandle) -> None:
        """Remove a waiting call; harmless if it is gone."""
        with self._lock:
            handles = self._by_key.get(handle.key)
            if handles is not None:
                handles.discard(handle)
                if not handles:
                    del self._by_key[handle.key]

    def notify(self, key: str, whom: Wake, written: Record | None = None) -> None:
        """Notify the calls that a write may let in. `written` is the record, if it was surely
        written: it may be the grant of one of them."""
        if whom == NOBODY or not self._by_key:
            return
        for handle in self.handles(key):
            if whom == ANYONE or handle.token in whom:
                if written is not None:
                    handle.found = inherited_by(written, handle.token) or handle.found
                handle.notify()

    def notify_all(self) -> None:
        """Notify every call, as when the store closes."""
        for key in self.keys():
            self.notify(key, ANYONE)

    def any(self) -> bool:
        """Whether any call waits."""
        return bool(self._by_key)

    def keys(self) -> list[str]:
        """Returns the keys that calls wait for."""
        with self._lock:
            return list(self._by_key)

    def handles(self, key: str) -> list[WaitHandle]:
        """Returns the calls that wait for this key."""
        with self._lock:
            return list(self._by_key.get(key, ()))


class NotifyingStore(Store):
    """A store that notifies waiting calls, so that neither a thread nor a task has to poll."""

    @abstractmethod
    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Have `notify` called when the key may have changed; at once if it has changed since
        `version`. Must not block: asyncio calls it on the event loop.
        """

    @abstractmethod
    def cancel_wait(self, handle: WaitHandle) -> None:
        """Stop notifying this call."""

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        """Block until a notification comes, or until the time is over."""
        notified = threading.Event()
        handle = self.register_wait(key, version, token, notified.set)
        try:
            notified.wait(at_most / SECOND)
        finally:
            self.cancel_wait(handle)
            spin.rest()
        return handle.found
