"""Who sleeps for which key, inside this process: shared by stores that can tell them."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from holdfast.core.commands import ANYONE, NOBODY, Wake
from holdfast.core.contract import Version
from holdfast.core.records import SECOND, Micros, Undecodable, decode
from holdfast.stores.base import Store

Ring = Callable[[], object]


class Sleeper:
    """One waiting call. `ring` may be called from any thread, more than once."""

    __slots__ = ("key", "mark", "ring", "token", "version")

    def __init__(self, key: str, version: Version, token: str, ring: Ring) -> None:
        self.key = key
        self.version = version
        self.token = token
        self.ring = ring
        self.mark: Any = None  # for the store's own use


def is_taken(raw: bytes | str) -> bool:
    """Whether nobody who sleeps for this record can be let in, whatever they want: it has an
    exclusive holder. (Who waits for that one to run out wakes by itself.)"""
    try:
        return any(holder.mode == "exclusive" for holder in decode(raw).holders)
    except Undecodable:
        return False  # whoever looks will say so


class Wakeups:
    """The sleepers by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sleepers: dict[str, set[Sleeper]] = {}

    def add(self, sleeper: Sleeper) -> None:
        """From now on, ring for this key."""
        with self._lock:
            self._sleepers.setdefault(sleeper.key, set()).add(sleeper)

    def discard(self, sleeper: Sleeper) -> None:
        """No longer."""
        with self._lock:
            sleepers = self._sleepers.get(sleeper.key)
            if sleepers is not None:
                sleepers.discard(sleeper)
                if not sleepers:
                    del self._sleepers[sleeper.key]

    def wake(self, key: str, whom: Wake) -> None:
        """Ring those whom a write may let in."""
        if whom == NOBODY or not self._sleepers:
            return
        for sleeper in self.sleepers(key):
            if whom == ANYONE or sleeper.token in whom:
                sleeper.ring()

    def wake_all(self) -> None:
        """Ring everyone, as when the store closes."""
        for key in self.keys():
            self.wake(key, ANYONE)

    def keys(self) -> list[str]:
        """The keys that somebody sleeps for."""
        with self._lock:
            return list(self._sleepers)

    def sleepers(self, key: str) -> list[Sleeper]:
        """Those who sleep for this key."""
        with self._lock:
            return list(self._sleepers.get(key, ()))


class RingingStore(Store):
    """A store that rings its sleepers, so that neither a thread nor a task has to poll."""

    @abstractmethod
    def sleep(self, key: str, version: Version, token: str, ring: Ring) -> Sleeper:
        """Ring once the key may have changed; at once if it has since that version.

        Must not block: asyncio calls it on the event loop.
        """

    @abstractmethod
    def unsleep(self, sleeper: Sleeper) -> None:
        """No longer ring."""

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> None:
        """Sleep until a write rings."""
        rung = threading.Event()
        sleeper = self.sleep(key, version, token, rung.set)
        try:
            rung.wait(at_most / SECOND)
        finally:
            self.unsleep(sleeper)
