"""Polls the store on behalf of all waiting calls, in one thread per store.

A key is polled soon after a call begins to wait for it and after a change was seen, and then
ever more rarely (see `pace`). Keys that are due at about the same time share a request. So many
idle calls cost the store little: a few short queries per second and process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.stores.waiting.handles import WaitHandle, WaitHandles, started
from holdfast.stores.waiting.pace import LONGEST_S, pause_s

# A call that was notified often waits again soon: its key's schedule is kept for so long.
LINGER_S = 2.0
# A key that is due within this part of its interval is polled together with those due now.
NEARLY = 0.4
MOST_KEYS = 500

logger = logging.getLogger("holdfast")

# Asks the store about keys. Returns what it saw of each key that has a record.
Probe = Callable[[Sequence[str]], Mapping[str, Any]]
# Whether what was seen (None: no record) may let this call in. It is asked after every poll,
# and may keep a mark on the handle.
Changed = Callable[[WaitHandle, Any], bool]


class Schedule:
    """When one key is polled next."""

    __slots__ = ("_longest_s", "_since", "at", "interval", "wanted_at")

    def __init__(self, longest_s: float, now: float) -> None:
        self._longest_s = longest_s
        self.wanted_at = now  # when a call was last seen to wait for it
        self.speed_up(now)

    def speed_up(self, now: float) -> None:
        """Something happened to the key: poll again soon."""
        self._since = now
        self.slow_down(now)

    def slow_down(self, now: float, took_s: float = 0.0) -> None:
        """The key was polled, and the answer took so long: pause a little longer from now on."""
        self.interval = pause_s(now - self._since, took_s, self._longest_s)
        self.at = now + self.interval


class Poller:
    """Notifies waiting calls when a poll shows that they may be let in."""

    def __init__(self, probe: Probe, changed: Changed, longest_s: float = LONGEST_S) -> None:
        self.handles = WaitHandles()
        self._probe = probe
        self._may_have_changed = changed
        self._longest_s = longest_s  # no pause between two polls of a key is longer
        self._changed = threading.Condition()
        self._schedules: dict[str, Schedule] = {}
        self._running = False
        self._closed = False

    def add(self, handle: WaitHandle) -> None:
        """Poll for this call."""
        self.handles.add(handle)
        with self._changed:
            if self._closed:
                handle.notify()
                return
            now = time.monotonic()
            new = Schedule(self._longest_s, now)
            schedule = self._schedules.setdefault(handle.key, new)
            schedule.wanted_at = now
            if schedule.at <= now:
                schedule.slow_down(now)  # a call that begins to wait has just looked
            if not self._running:
                started(self._run, "holdfast-poll")
            self._changed.notify()

    def discard(self, handle: WaitHandle) -> None:
        """Stop polling for this call."""
        self.handles.discard(handle)

    def close(self) -> None:
        """End the thread, and notify all calls."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.handles.notify_all()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        # The thread says by itself that it runs: a signal handler may raise in its starter.
        with self._changed:
            if self._running:
                return
            self._running = True
        try:
            while (keys := self._next_keys()) is not None:
                if keys:
                    self._poll(keys)
        except BaseException:
            with self._changed:
                self._running = False  # the next call starts another thread
            raise

    def _next_keys(self) -> list[str] | None:
        """Returns the keys to poll now, an empty list after a pause, or None at the end."""
        with self._changed:
            now = time.monotonic()
            wanted = self._forget_unwanted(now)
            if self._closed or not self._schedules:
                self._running = False
                return None
            keys = self._due(wanted, now)
            if not keys:
                next_at = min((self._schedules[key].at for key in wanted), default=now + LINGER_S)
                self._changed.wait(max(0.001, next_at - now))
            return keys

    def _forget_unwanted(self, now: float) -> list[str]:
        """Drop the keys that no call has waited for lately. Returns those that calls wait for."""
        wanted = [key for key in self.handles.keys() if key in self._schedules]
        for key in wanted:
            self._schedules[key].wanted_at = now
        self._schedules = {
            key: schedule
            for key, schedule in self._schedules.items()
            if now - schedule.wanted_at < LINGER_S
        }
        return wanted

    def _due(self, keys: list[str], now: float) -> list[str]:
        schedules = [(key, self._schedules[key]) for key in keys]
        if not any(schedule.at <= now for _, schedule in schedules):
            return []
        near = [one for one in schedules if one[1].at <= now + NEARLY * one[1].interval]
        return [key for key, _ in near[:MOST_KEYS]]

    def _poll(self, keys: list[str]) -> None:
        began = time.monotonic()
        try:
            seen = self._probe(keys)
        except Exception as exc:
            # The callers meet the same trouble, and report it, when they load the record.
            if not isinstance(exc, HoldfastError):
                logger.exception("Polling for waiting calls failed in an unknown way")
            self._polled(keys, None)
            for key in keys:
                for handle in self.handles.handles(key):
                    handle.notify()
            return
        self._polled(keys, time.monotonic() - began)
        for key in keys:
            result = seen.get(key)
            handles = self.handles.handles(key)
            self._notify(key, [one for one in handles if self._may_have_changed(one, result)])

    def _polled(self, keys: list[str], took_s: float | None) -> None:
        """Plan the next polls. `took_s` is None if this one failed: then they come ever more
        rarely, because the store may have too much to do already."""
        with self._changed:
            now = time.monotonic()
            for key in keys:
                schedule = self._schedules.get(key)
                if schedule is not None:
                    schedule.slow_down(now, 2 * schedule.interval if took_s is None else took_s)

    def _notify(self, key: str, handles: list[WaitHandle]) -> None:
        for handle in handles:
            handle.notify()
        if handles:
            with self._changed:
                schedule = self._schedules.get(key)
                if schedule is not None:
                    schedule.speed_up(time.monotonic())
