"""The schedule of a client's keeper: when to renew which hold. Pure; a thread runs it.

For every hold there are three moments, and one timer set to the first of them:

    beat      renew it; a third of the ttl after the last one, spread so that many leases
              do not beat together, on a fine grid so that beats near each other can share
              a trip, and at most so many per second in all
    danger    two thirds of the ttl have passed since the last renewal that went through,
              though it was to be renewed
    loss      the deadline; it comes whether or not a beat is under way

 0. Most leases are released long before their first beat. A new hold is only noted; it gets
    its timer at the keeper's next poll, which comes before the hold could need one.
 1. A beat under way delays nothing: danger and loss come at their moments all the same.
 2. A failed beat is tried again soon, and again, until the lease is lost or ended.
 3. After `stop_at` (from `max_hold`) there are no more beats, and the lease expires.
 4. A hold with a watchdog is lost at the beat that finds no sign of life of its holder's work for
    that time: work that hangs must not keep the lock for ever. Its record runs out by its ttl.
 5. Under a cap, beats that are due wait in line. A hold that was ended or lost leaves the line
    without taking a turn: too many leases for the cap cost some of them, not all.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from holdfast.core.holds import BEATS_PER_TTL, Hold
from holdfast.core.records import SECOND, Micros

SHORTEST_RETRY: Micros = 20_000
STALE_TIMERS = 64
# A period is divided into so many moments at which leases of the same ttl may beat.
GRID = 64
COARSEST: Micros = 100_000
# With each beat, leases that beat together drift apart by up to this part of a period.
DRIFT = 16
# Turns under a cap that were missed because the thread woke up late are made up for this long.
LATE: Micros = 50_000


# When, which one, and whose: an older one of the same hold is stale.
_Timer: TypeAlias = tuple[Micros, int, Hold]


class Due:
    """What is to be done now."""

    __slots__ = ("beats", "dangers", "losses")

    def __init__(self) -> None:
        self.beats: list[Hold] = []
        self.dangers: list[Hold] = []
        self.losses: list[Hold] = []

    def __bool__(self) -> bool:
        return bool(self.beats or self.dangers or self.losses)


class _Kept:
    """A hold in the keeper's care."""

    __slots__ = ("beating", "hold", "in_danger", "in_line", "next_beat", "stop_at", "timer")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.stop_at = None if hold.care.max_hold is None else hold.acquired + hold.care.max_hold
        self.next_beat: Micros | None = None
        self.beating = False
        self.in_line = False  # its beat is due, and waits for a turn under the cap
        self.in_danger = False
        self.timer = 0

    def danger_at(self) -> Micros:
        return self.hold.renewed + self.hold.ttl * (BEATS_PER_TTL - 1) // BEATS_PER_TTL

    def next_moment(self) -> Micros:
        moment = self.hold.deadline
        if self.hold.care.keep and not self.in_danger:
            moment = min(moment, self.danger_at())
        if self.beats_by_itself():
            moment = min(moment, self.next_beat or 0)
        return moment

    def beats_by_itself(self) -> bool:
        return self.next_beat is not None and not self.beating and not self.in_line

    def hangs(self, now: Micros) -> bool:
        watchdog = self.hold.care.watchdog
        return watchdog is not None and now >= self.hold.alive + watchdog

    def stopped(self, at: Micros) -> bool:
        return not self.hold.care.keep or (self.stop_at is not None and at >= self.stop_at)


class Keeper:
    """The schedule of all holds of one client. Not safe for threads by itself."""

    def __init__(self, beats_per_second: float | None = None) -> None:
        self._gap: Micros = int(SECOND / beats_per_second) if beats_per_second else 0
        self._next_turn: Micros = 0
        self._line: deque[_Kept] = deque()
        self._new: dict[Hold, None] = {}
        self._new_at: Micros | None = None  # no new hold needs a look before this
        self._kept: dict[Hold, _Kept] = {}
        self._timers: list[_Timer] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._kept) + len(self._new)

    def holds(self) -> list[Hold]:
        """Returns all holds in the keeper's care."""
        return [*self._kept, *self._new]

    @property
    def beating(self) -> bool:
        """Whether a renewal is under way."""
        return any(kept.beating for kept in self._kept.values())

    def add(self, hold: Hold) -> Micros:
        """Take a hold into care. Returns when the keeper must be polled for it.
        Without `keep`, only its loss is watched for."""
        self._new[hold] = None
        at = hold.renewed + hold.ttl // (2 * BEATS_PER_TTL)
        if self._new_at is None or at < self._new_at:
            self._new_at = at
        return at

    def discard(self, hold: Hold) -> None:
        """Let go of a hold; its timer goes stale."""
        if hold in self._new:
            del self._new[hold]
        elif self._kept.pop(hold, None) is not None:
            self._sweep()

    def next_at(self) -> Micros | None:
        """Returns when there will be something to do; None: nothing is scheduled."""
        while self._timers and self._stale(self._timers[0]):
            heappop(self._timers)
        moments = [at for at in (self._new_at, self._timers[0][0] if self._timers else None) if at]
        if self._line:
            moments.append(self._next_turn)
        return min(moments, default=None)

    def poll(self, now: Micros) -> Due:
        """Returns what is due at this moment."""
        due = Due()
        if self._new_at is not None and now >= self._new_at:
            self._take_in()
        while self._timers and self._timers[0][0] <= now:
            timer = heappop(self._timers)
            if not self._stale(timer):
                self._fire(self._kept[timer[2]], now, due)
        if self._line:
            self._take_turns(now, due)
        return due

    def beat_done(self, hold: Hold, now: Micros, *, renewed: bool) -> bool:
        """Note that a beat has ended. Returns True if the hold was in danger, and no longer is."""
        kept = self._kept.get(hold)
        if kept is None:
            return False
        kept.beating = False
        period = hold.ttl // BEATS_PER_TTL
        if renewed:
            self._plan(kept, now + period - self._share(period // DRIFT))
        else:
            self._plan(kept, now + max(period // 4, SHORTEST_RETRY))
        rescued = renewed and kept.in_danger and now < kept.danger_at()
        if rescued:
            kept.in_danger = False
        self._arm(kept)
        return rescued

    def _take_in(self) -> None:
        for hold in self._new:
            kept = self._kept[hold] = _Kept(hold)
            half = hold.ttl // (2 * BEATS_PER_TTL)
            self._plan(kept, hold.renewed + half + self._share(half))
            self._arm(kept)
        self._new.clear()
        self._new_at = None

    def _fire(self, kept: _Kept, now: Micros, due: Due) -> None:
        hold = kept.hold
        if now >= hold.deadline or kept.hangs(now):
            hold.end("lost", self._reason(kept, now))
            del self._kept[hold]
            due.losses.append(hold)
            return
        if kept.hold.care.keep and not kept.in_danger and now >= kept.danger_at():
            kept.in_danger = True
            if not kept.stopped(now):
                due.dangers.append(hold)
        if kept.beats_by_itself() and now >= (kept.next_beat or 0):
            self._beat(kept, now, due)
        self._arm(kept)

    def _reason(self, kept: _Kept, now: Micros) -> str:
        if kept.hangs(now):
            return "its holder's work gave no sign of life: alive() was not called in time"
        if not kept.hold.care.keep:
            return "its ttl ran out, and it was not to be renewed"
        if kept.stopped(now):
            return "it was held for its max_hold"
        return "it could not be renewed in time"

    def _beat(self, kept: _Kept, now: Micros, due: Due) -> None:
        if kept.stopped(now):
            kept.next_beat = None
            return
        if self._gap:
            kept.in_line = True
            self._line.append(kept)
            return
        kept.beating = True
        due.beats.append(kept.hold)

    def _take_turns(self, now: Micros, due: Due) -> None:
        while self._line and now >= self._next_turn:
            kept = self._line.popleft()
            kept.in_line = False
            if self._kept.get(kept.hold) is kept and not kept.stopped(now):
                kept.beating = True
                due.beats.append(kept.hold)
                self._next_turn = max(self._next_turn, now - LATE) + self._gap

    def _plan(self, kept: _Kept, at: Micros) -> None:
        grid = min(kept.hold.ttl // BEATS_PER_TTL // GRID, COARSEST) or 1
        kept.next_beat = None if kept.stopped(at) else at - at % grid

    def _arm(self, kept: _Kept) -> None:
        self._count = kept.timer = self._count + 1
        heappush(self._timers, (kept.next_moment(), kept.timer, kept.hold))
        self._sweep()

    def _share(self, of: Micros) -> Micros:
        """Returns another part of a span each time, evenly spread (the golden ratio's sequence)."""
        return ((self._count * 40_503) & 0xFFFF) * of >> 16

    def _sweep(self) -> None:
        """Drop the stale timers once they are many."""
        live = len(self._kept)
        if len(self._timers) > live + live // 2 + STALE_TIMERS:
            self._timers = [timer for timer in self._timers if not self._stale(timer)]
            heapify(self._timers)

    def _stale(self, timer: _Timer) -> bool:
        _, number, hold = timer
        kept = self._kept.get(hold)
        return kept is None or kept.timer != number
