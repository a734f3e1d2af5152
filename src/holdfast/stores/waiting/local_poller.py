"""Notifies waiting calls on stores that all their users reach on one machine, in one thread.

1. The process whose write lets a call in wakes that call (see `local_wakeups`). The call tries
   again at once, unless the wake-up has brought the grant.
2. Wake-ups can fail, so the thread also polls: right after a call has begun to wait, soon after a
   change, and then ever more rarely. A call with others ahead in the queue is polled for still
   more rarely, the further back the more rarely. When it waits again, its key is not polled right
   away.
3. The waiter just ahead in the queue frees the lock before this call gets it, and wakes the call if
   both are on one machine. If they are not, a call that learned too late that it is the first would
   keep a free lock from all behind it. So its next poll comes after half of the time that the
   places ahead will take, by the pace at which the queue has moved: polls get denser towards its
   turn. A pace is believed to slow down only little by little. Otherwise one late call would make
   all others late, and they the next.
4. A poll that shows a lock which this call cannot have yet notifies nobody.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from holdfast.core.commands import ANYONE, Wake
from holdfast.core.contract import Found, Version
from holdfast.core.records import SECOND, Micros, Record
from holdfast.stores.waiting.handles import PollResult, WaitHandle, WaitHandles, lets_in, started
from holdfast.stores.waiting.local_wakeups import (
    Inbox,
    open_inbox,
    open_socket,
    wait_for_wake,
    waits_here,
    wake,
)
from holdfast.stores.waiting.polling_store import PollingStore

# A key that is due within this part of its interval is polled together with those due now.
NEARLY = 0.4
# For those behind, longer for each place, and at most this.
RAREST_S = 5.0
# How long a place in the queue takes before the queue was seen to move, and how much longer than
# before a place may seem to take.
FIRST_TURN_S = 0.02
SLOWER_TURN = 1.25
# While the queue stands still, the pause is this part of the time for which it has.
STILL = 0.25
# The thread outlives the last waiter for so long, because the next one often comes soon.
LINGER_S = 1.0
AFTER_TROUBLE_S = 0.05


class Looker(Protocol):
    """Looks at keys. Only one thread at a time uses it. It opens what it needs by itself."""

    def look(self, keys: Sequence[str]) -> Mapping[str, PollResult]:
        """Returns what is there now under these keys; nothing for a key without a record."""

    def pause(self) -> None:
        """Have nothing open until the next look: the process is about to fork."""

    def close(self) -> None:
        """Close what is open: nobody waits any more."""


class Intervals(NamedTuple):
    """How long a key is not polled."""

    first_s: float  # after a call has begun to wait
    fastest_s: float  # after a change
    slowest_s: float  # at most, for the first in the queue
    a_place_s: float  # at most, for those behind it, for each place
    slowing: float = 1.3  # by which factor each pause is longer than the one before


THIS_MACHINE = Intervals(first_s=0, fastest_s=0.001, slowest_s=0.025, a_place_s=0.025)


class _Schedule:
    """When one key is polled next."""

    __slots__ = ("_intervals", "_moved_at", "_turn_s", "at", "interval", "places", "turn")

    def __init__(self, at: float, intervals: Intervals) -> None:
        self._intervals = intervals
        self.turn: object = ()
        self.at, self.interval = at, 0.0
        self.places = 0  # how many were ahead in the queue
        self._moved_at, self._turn_s = at, FIRST_TURN_S

    @property
    def behind(self) -> bool:
        """Whether others were ahead in the queue."""
        return self.places > 0

    def wanted(self, at: float) -> None:
        """A call has begun to wait: poll by then, unless it is likely to be behind others."""
        if not self.behind:
            self.at = min(self.at, at)

    def nearly_due(self, now: float) -> bool:
        """Whether it may as well be polled now, together with another one."""
        return self.at <= now + max(self._intervals.fastest_s, NEARLY * self.interval)

    def looked(self, now: float, seen: PollResult | None, ahead: Sequence[str]) -> None:
        """The key was polled: plan the next time. `ahead` are the tokens of the waiters ahead."""
        turn = None if seen is None else seen.turn
        changed, self.turn = turn != self.turn or self.behind, turn
        self._note_pace(now, len(ahead))
        if ahead:
            self.interval = self._pause_behind(ahead, now)
        elif changed:
            self.interval = self._intervals.fastest_s
        else:
            slower_s = self.interval * self._intervals.slowing
            self.interval = min(slower_s, self._intervals.slowest_s)
        self.at = now + self.interval

    def _pause_behind(self, ahead: Sequence[str], now: float) -> float:
        """Returns how long the key is not polled while these waiters are ahead."""
        rarely_s = min(self._intervals.a_place_s * (1 + len(ahead)), RAREST_S)
        if waits_here(ahead[-1]):
            return rarely_s
        half_way_s = self._turn_s * len(ahead) / 2
        still_s = (now - self._moved_at) * STILL
        return min(rarely_s, max(half_way_s, still_s, self._intervals.fastest_s))

    def _note_pace(self, now: float, places: int) -> None:
        """Note how long a place in the queue takes."""
        moved, self.places = self.places - places, places
        if moved > 0:
            turn_s = (now - self._moved_at) / moved
            self._turn_s = min(turn_s, self._turn_s * SLOWER_TURN)
        if moved:
            self._moved_at = now


class LocalPoller:
    """Notifies waiting calls when they may be let in."""

    def __init__(self, looker: Looker, intervals: Intervals | None = None) -> None:
        self._intervals = intervals or THIS_MACHINE
        self.handles = WaitHandles()
        self._looker = looker
        self._lock = threading.Lock()
        self._inbox: Inbox | None = None  # while the thread runs
        self._running = False
        self._new: deque[str] = deque()  # keys that calls have begun to wait for
        self._schedules: dict[str, _Schedule] = {}
        self._closed = False
        self._looking = threading.Lock()  # held while the looker is in use
        self._paused = False

    def wait(self, key: str, version: Version, token: str, seconds: float) -> Found:
        """Block until the key may have changed for this token, or for a time. The calling thread
        waits for its own wake-up, which saves a change of threads when a lock changes hands."""
        opened = open_socket(token)
        if opened is None:
            return self._wait_for_notify(key, version, token, seconds)
        with opened:
            handle = WaitHandle(key, version, token, lambda: wake((token,)))
            try:
                self.add(handle, opened)
                brought = wait_for_wake(opened, token, seconds)
            finally:
                self.discard(handle)
        return brought or handle.found

    def _wait_for_notify(self, key: str, version: Version, token: str, seconds: float) -> Found:
        notified = threading.Event()
        handle = WaitHandle(key, version, token, notified.set)
        try:
            self.add(handle)
            notified.wait(seconds)
        finally:
            self.discard(handle)
        return handle.found

    def add(self, handle: WaitHandle, own: socket.socket | None = None) -> None:
        """Notify this call when its key changes. `own` is its socket, if it has one already."""
        self.handles.add(handle)
        with self._lock:
            if self._closed:
                handle.notify()
                return
            if self._inbox is None:
                self._inbox = open_inbox()
            if not self._running and not started(self._run, "holdfast-watch"):
                self._end()
                return
            if own is None:
                self._inbox.open(handle)
            if not self._is_planned(handle.key):
                self._new.append(handle.key)
                self._inbox.interrupt()

    def _is_planned(self, key: str) -> bool:
        """Whether the thread looks at this key early enough without being told."""
        schedule = self._schedules.get(key)
        return schedule is not None and schedule.behind and schedule.at > time.monotonic()

    def discard(self, handle: WaitHandle) -> None:
        """Stop watching for this call."""
        self.handles.discard(handle)
        with self._lock:
            if self._inbox is not None:
                self._inbox.forget(handle)

    def notify(self, key: str, whom: Wake, written: Record | None = None) -> None:
        """A write of ours may let these in: notify those who wait here, and wake the others.
        `written` is the record, if it was surely written."""
        self.handles.notify(key, whom, written)
        if whom and whom != ANYONE:
            here = {handle.token for handle in self.handles.handles(key)}
            if there := [token for token in whom if token not in here]:
                wake(there, written)

    def close(self) -> None:
        """End the thread, and notify all calls, which then look for themselves."""
        with self._lock:
            self._closed = True
            if self._inbox is not None:
                self._inbox.interrupt()
        self.handles.notify_all()

    def pause(self, at_most_s: float) -> bool:
        """Close what is open before a fork. Returns False if that was not possible in time."""
        self._paused = self._looking.acquire(timeout=at_most_s)
        if self._paused:
            self._looker.pause()
        return self._paused

    def resume(self) -> None:
        """Go on after the fork."""
        if self._paused:
            self._paused = False
            self._looking.release()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        # The thread says by itself that it runs: a signal handler may raise in its starter.
        with self._lock:
            if self._running:
                return
            self._running = True
        try:
            self._watch()
        except Exception:
            # The calls meet the same error when they look, and report it. If they do not, the
            # pause keeps them from restarting this thread again and again.
            time.sleep(AFTER_TROUBLE_S)
            with self._lock:
                self._end()
            self.handles.notify_all()
        finally:
            with self._looking:
                self._looker.close()

    def _watch(self) -> None:
        inbox = self._inbox
        assert inbox is not None
        wanted_at = time.monotonic()
        while not self._closed:
            now = time.monotonic()
            keys = self._wanted()
            if keys:
                wanted_at = now
                self._look(self._due(keys, now), now)
            elif now - wanted_at > LINGER_S and self._stop():
                return
            # Also for keys that nobody waits for just now: a call that is behind others does not
            # interrupt this thread when it waits again.
            planned = (
                one.at for key, one in self._schedules.items() if key in keys or one.at > now
            )
            next_at = min(planned, default=now + LINGER_S)
            if not keys:
                next_at = min(next_at, now + LINGER_S)
            for handle in inbox.wait(next_at - time.monotonic()):
                handle.notify()
        with self._lock:
            self._end()

    def _wanted(self) -> list[str]:
        """Returns the keys that calls wait for, each with a schedule."""
        new = {self._new.popleft() for _ in range(len(self._new))}
        keys = self.handles.keys()
        now = time.monotonic()
        first_at = now + self._intervals.first_s
        for key in keys:
            schedule = self._schedules.get(key)
            if schedule is None:
                self._schedules[key] = _Schedule(first_at, self._intervals)
            elif key in new:
                schedule.wanted(first_at)
        # A call that renews its place in the queue waits again soon: its key's schedule is kept.
        self._schedules = {
            key: schedule
            for key, schedule in self._schedules.items()
            if key in keys or now - schedule.at < LINGER_S
        }
        return keys

    def _due(self, keys: list[str], now: float) -> list[str]:
        """Returns those of the keys to look at now. One that is due soon shares another's look."""
        if all(self._schedules[key].at > now for key in keys):
            return []
        return [key for key in keys if self._schedules[key].nearly_due(now)]

    def _look(self, keys: list[str], now: float) -> None:
        if not keys:
            return
        # A call that begins to wait during the look is left out: it may know more than that shows.
        waiting = {key: self.handles.handles(key) for key in keys}
        with self._looking:
            results = self._looker.look(keys)
        for key, handles in waiting.items():
            seen = results.get(key)
            self._schedules[key].looked(now, seen, tokens_ahead(handles, seen))
            for handle in handles:
                if lets_in(handle, seen):
                    handle.notify()

    def _stop(self) -> bool:
        """End, unless somebody has begun to wait. Returns whether it has ended."""
        with self._lock:
            if self.handles.any():
                return False
            self._end()
            return True

    def _end(self) -> None:
        """Let the next call start another thread. The caller has the lock."""
        self._running = False
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None


def tokens_ahead(handles: Sequence[WaitHandle], seen: PollResult | None) -> Sequence[str]:
    """Returns the tokens of the waiters ahead of the first of these calls; none if that is not
    known or if one of the calls has no place in the queue."""
    if seen is None or seen.found is None or not handles:
        return ()
    tokens = [waiter.token for waiter in seen.found.record.queue]
    places = {token: place for place, token in enumerate(tokens)}
    return tokens[: min(places.get(handle.token, 0) for handle in handles)]


class LocalStore(PollingStore):
    """A store that all its users reach on one machine, mostly."""

    _poller: LocalPoller

    def awaits(self, token: str) -> bool:
        """Whether a call waits with this token on this machine. It has a socket until it ends, or
        its process does."""
        return waits_here(token)

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        """Block until a wake-up comes or a poll shows a change, or until the time is over."""
        return self._poller.wait(key, version, token, at_most / SECOND)
