"""Polls the store on behalf of all waiting calls, in one thread per store.

A key is polled soon after a call begins to wait for it and after a change was seen, and then
ever more rarely, at slightly random times. Keys that are due at about the same time share a
request. So many idle calls cost the store little: a few short queries per second and process.
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


class PollIntervals(NamedTuple):
    """How long a key is not polled: at first, and at most."""

    first_s: float = 0.02
    longest_s: float = 1.0


class Schedule:
    """When one key is polled next."""

    __slots__ = ("_intervals", "at", "interval", "wanted_at")

    def __init__(self, intervals: PollIntervals, now: float) -> None:
        self._intervals = intervals
        self.wanted_at = now  # when a call was last seen to wait for it
        self.speed_up(now)

    def speed_up(self, now: float) -> None:
        """Something happened here: poll again soon."""
        self.interval = self._intervals.first_s
        self.at = now + _jittered(self.interval)

    def slow_down(self, now: float) -> None:
        """It was polled: wait a little longer before the next time."""
        self.interval = min(self.interval * SLOWING, self._intervals.longest_s)
        self.at = now + _jittered(self.interval)


class Poller:
    """Notifies waiting calls when a poll shows that they may be let in."""

    def __init__(
        self, probe: Probe, changed: Changed, intervals: PollIntervals | None = None
    ) -> None:
        self.handles = WaitHandles()
        self._probe = probe
        self._may_have_changed = changed
        self._intervals = intervals or PollIntervals()
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
            new = Schedule(self._intervals, now)
            self._schedules.setdefault(handle.key, new).wanted_at = now
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
        # The thread says by itself that it runs: a signal handler may raise in whoever starts it.
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
        for _, schedule in near[:MOST_KEYS]:
            schedule.slow_down(now)
        return [key for key, _ in near[:MOST_KEYS]]

    def _poll(self, keys: list[str]) -> None:
        try:
            seen = self._probe(keys)
        except Exception as exc:
            # The callers meet the same trouble, and report it, when they load the record. The keys
            # are not polled sooner: the store may have too much to do already.
            if not isinstance(exc, HoldfastError):
                logger.exception("Polling for waiting calls failed in an unknown way")
            for key in keys:
                for handle in self.handles.handles(key):
                    handle.notify()
            return
        for key in keys:
            result = seen.get(key)
            handles = self.handles.handles(key)
            self._notify(key, [one for one in handles if self._may_have_changed(one, result)])

    def _notify(self, key: str, handles: list[WaitHandle]) -> None:
        for handle in handles:
            handle.notify()
        if handles:
            with self._changed:
                schedule = self._schedules.get(key)
                if schedule is not None:
                    schedule.speed_up(time.monotonic())


def _jittered(interval: float) -> float:
    return random.uniform(0.7 * interval, interval)
