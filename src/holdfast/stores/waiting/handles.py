"""Who sleeps for which key, inside this process: shared by stores that can tell them."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast.core.commands import ANYONE, NOBODY, Wake
from holdfast.core.contract import Entry, Version
from holdfast.core.records import SECOND, Micros
from holdfast.stores import spin
from holdfast.stores.base import Store

Notify = Callable[[], object]


def started(run: Callable[[], None], name: str) -> bool:
    """Run this in a thread, which rings those who sleep. False: there is no thread to be had. Then
    they look by themselves, and whoever sleeps next tries again."""
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


class WaitHandle:
    """One waiting call. `ring` may be called from any thread, more than once."""

    __slots__ = ("found", "key", "mark", "notify", "token", "version")

    def __init__(self, key: str, version: Version, token: str, notify: Notify) -> None:
        self.key = key
        self.version = version
        self.token = token
        self.notify = notify
        self.mark: Any = None  # for the store's own use
        self.found: Entry | None = None  # what was there when it was rung, if that is known


class PollResult(Struct, frozen=True):
    """What a look for those who sleep has shown of a key."""

    version: Version = None
    turn: Any = None  # changes with the writes that may let somebody in
    found: Entry | None = None  # as a load would have shown it, if it is known
    taken: bool = False


def poll_result(entry: Entry, turn: Any) -> PollResult:
    """Of a whole record."""
    return PollResult(entry.version, turn, entry, is_taken(entry))


def is_taken(entry: Entry) -> bool:
    """Whether nobody can be let in, whatever they want."""
    return any(holder.mode == "exclusive" for holder in entry.record.holders)


def lets_in(handle: WaitHandle, seen: PollResult | None) -> bool:
    """Whether what is to be seen (None: no record) may let this sleeper in. The first look
    compares the version, later ones only the turn. Where somebody was faster, whoever comes
    comes in vain and slows down the holder; who waits for it to run out wakes by itself."""
    seen = seen or PollResult()
    before, handle.mark = handle.mark, (seen.turn,)
    changed = handle.mark != before if before else seen.version != handle.version
    if not changed or seen.taken:
        return False
    handle.found = seen.found
    return True


# So many at most look and then go to sleep around the same news.
MOST_LATE = 100


class LastHeard:
    """The last version that was told of a key, for those who looked before that and sleep after.

    Anybody may have told it. A version that so many have come too late for is not there, and who
    waits would look for it without end. Not safe for threads by itself.
    """

    __slots__ = ("_late", "version")

    def __init__(self) -> None:
        self.version = 0
        self._late = 0

    def hear(self, version: int) -> None:
        """There is this version, or was."""
        if version > self.version:
            self.version, self._late = version, 0

    def missed_by(self, version: int) -> bool:
        """Whether somebody who goes to sleep, and knows this version, has missed a later one."""
        if self.version <= version:
            return False
        self._late += 1
        if self._late > MOST_LATE:
            self.version = 0
        return self.version > version


class WaitHandles:
    """The sleepers by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sleepers: dict[str, set[WaitHandle]] = {}

    def add(self, handle: WaitHandle) -> None:
        """From now on, ring for this key."""
        with self._lock:
            self._sleepers.setdefault(handle.key, set()).add(handle)

    def discard(self, handle: WaitHandle) -> None:
        """Stop waking this handle."""
        with self._lock:
            handles = self._sleepers.get(handle.key)
            if handles is not None:
                handles.discard(handle)
                if not handles:
                    del self._sleepers[handle.key]

    def notify(self, key: str, whom: Wake) -> None:
        """Ring those whom a write may let in."""
        if whom == NOBODY or not self._sleepers:
            return
        for handle in self.handles(key):
            if whom == ANYONE or handle.token in whom:
                handle.notify()

    def notify_all(self) -> None:
        """Ring everyone, as when the store closes."""
        for key in self.keys():
            self.notify(key, ANYONE)

    def any(self) -> bool:
        """Whether somebody sleeps."""
        return bool(self._sleepers)

    def keys(self) -> list[str]:
        """The keys that somebody sleeps for."""
        with self._lock:
            return list(self._sleepers)

    def handles(self, key: str) -> list[WaitHandle]:
        """Those who sleep for this key."""
        with self._lock:
            return list(self._sleepers.get(key, ()))


class NotifyingStore(Store):
    """A store that rings its sleepers, so that neither a thread nor a task has to poll."""

    @abstractmethod
    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Ring once the key may have changed; at once if it has since that version.

        Must not block: asyncio calls it on the event loop.
        """

    @abstractmethod
    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer ring."""

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        """Sleep until a write rings."""
        notified = threading.Event()
        handle = self.register_wait(key, version, token, notified.set)
        try:
            notified.wait(at_most / SECOND)
        finally:
            self.cancel_wait(handle)
            spin.rest()
        return handle.found
