"""Waiting by looking: one thread per store asks for all keys that somebody waits for.

A key is looked at soon when somebody begins to wait for it, or when it was just freed, and
then ever more rarely, at times that are a little random. Keys whose time comes near are
asked for together. So many idle waiters cost the store little: a few short queries per
second and process once they have settled down.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.stores.waiting.handles import WaitHandle, WaitHandles, started

SLOWING = 1.4
# A waiter that looks for itself comes back soon: its key's pace is kept for so long.
LINGER_S = 2.0
# Keys whose nap is over but for this part of it are asked for together.
NEARLY = 0.4
MOST_KEYS = 500

logger = logging.getLogger("holdfast")

# Asks the store about keys: what is to be seen of each that has a record.
Probe = Callable[[Sequence[str]], Mapping[str, Any]]
# Whether what is to be seen (None: no record) may let this sleeper in. It is asked at every
# look, and may keep a mark on the sleeper.
Changed = Callable[[WaitHandle, Any], bool]


class PollIntervals(NamedTuple):
    """How long a key is left alone, at first and in the end."""

    first_s: float = 0.02
    longest_s: float = 1.0


class Pace:
    """How often a key is looked at."""

    __slots__ = ("_naps", "at", "nap", "wanted_at")

    def __init__(self, naps: PollIntervals, now: float) -> None:
        self._naps = naps
        self.wanted_at = now  # when somebody was last seen to wait for it
        self.quicken(now)

    def quicken(self, now: float) -> None:
        """Something happens here: look again soon."""
        self.nap = self._naps.first_s
        self.at = now + _jittered(self.nap)

    def slow_down(self, now: float) -> None:
        """It was looked at: next time a little later."""
        self.nap = min(self.nap * SLOWING, self._naps.longest_s)
        self.at = now + _jittered(self.nap)


class Poller:
    """Rings sleepers when they may have been let in."""

    def __init__(self, turns: Probe, changed: Changed, naps: PollIntervals | None = None) -> None:
        self.handles = WaitHandles()
        self._turns = turns
        self._may_have_changed = changed
        self._naps = naps or PollIntervals()
        self._changed = threading.Condition()
        self._paces: dict[str, Pace] = {}
        self._running = False
        self._closed = False

    def add(self, handle: WaitHandle) -> None:
        """Look after this one."""
        self.handles.add(handle)
        with self._changed:
            if self._closed:
                handle.notify()
                return
            now = time.monotonic()
            self._paces.setdefault(handle.key, Pace(self._naps, now)).wanted_at = now
            if not self._running:
                self._running = True
                if not started(self._run, "holdfast-poll"):
                    self._running = False
            self._changed.notify()

    def discard(self, handle: WaitHandle) -> None:
        """Stop polling for this handle."""
        self.handles.discard(handle)

    def close(self) -> None:
        """End the thread, and let everyone look for themselves."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.handles.notify_all()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (keys := self._next_keys()) is not None:
                if keys:
                    self._look(keys)
        except BaseException:
            with self._changed:
                self._running = False  # whoever sleeps next starts another thread
            raise

    def _next_keys(self) -> list[str] | None:
        """The keys to look at now, or none after a nap. None: it is over."""
        with self._changed:
            now = time.monotonic()
            awake = self._forget_unwanted(now)
            if self._closed or not self._paces:
                self._running = False
                return None
            keys = self._due(awake, now)
            if not keys:
                next_at = min((self._paces[key].at for key in awake), default=now + LINGER_S)
                self._changed.wait(max(0.001, next_at - now))
            return keys

    def _forget_unwanted(self, now: float) -> list[str]:
        """Drop the keys that nobody has waited for lately; those that somebody waits for."""
        awake = [key for key in self.handles.keys() if key in self._paces]
        for key in awake:
            self._paces[key].wanted_at = now
        self._paces = {k: p for k, p in self._paces.items() if now - p.wanted_at < LINGER_S}
        return awake

    def _due(self, keys: list[str], now: float) -> list[str]:
        if not any(self._paces[key].at <= now for key in keys):
            return []
        near = [key for key in keys if self._paces[key].at <= now + NEARLY * self._paces[key].nap]
        for key in near[:MOST_KEYS]:
            self._paces[key].slow_down(now)
        return near[:MOST_KEYS]

    def _look(self, keys: list[str]) -> None:
        try:
            seen = self._turns(keys)
        except Exception as exc:
            # The sleepers meet the same trouble, and report it, when they look themselves. A store
            # that has too much to do must not be asked the more often for it.
            if not isinstance(exc, HoldfastError):
                logger.exception("Looking for those who wait failed in an unknown way")
            for key in keys:
                for handle in self.handles.handles(key):
                    handle.notify()
            return
        for key in keys:
            sight = seen.get(key)
            handles = self.handles.handles(key)
            self._notify(key, [one for one in handles if self._may_have_changed(one, sight)])

    def _notify(self, key: str, handles: list[WaitHandle]) -> None:
        for handle in handles:
            handle.notify()
        if handles:
            with self._changed:
                pace = self._paces.get(key)
                if pace is not None:
                    pace.quicken(time.monotonic())


def _jittered(nap: float) -> float:
    return random.uniform(0.7 * nap, nap)
