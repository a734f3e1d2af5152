"""Damps the thundering herd: when a lock is freed and many wait for it, not all of them come.

A release that may let anyone in notifies every process that waits for the lock. If all of them
claim it, one is granted, and the requests of the others slow it down. The processes do not know of
each other, but each can estimate how many compete from how its own waiting calls fare:

 1. A call that was notified and registers again has lost a race: there are more competitors than
    estimated. A call that was notified and does not come back has won: there are fewer.
 2. With an estimate of n competitors, each process answers one notification in n, by chance.
 3. A notification that was skipped is answered a moment later, unless the next one comes
    first: perhaps every process has skipped it.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

from holdfast.stores.waiting.handles import WaitHandle

LARGEST_ESTIMATE = 16.0
WON = 0.7  # the estimate is multiplied by this after a won race
# An estimate is forgotten when a lock had no notification for so long.
GOOD_FOR_S = 1.0
REMEMBERED = 1000
# A notification that was skipped is answered after this at the latest.
MAKE_UP_S = 0.006


class _Race:
    """What this process has learnt about the competition for one lock."""

    __slots__ = ("at", "notified", "size")

    def __init__(self) -> None:
        self.size = 1.0  # how many processes seem to compete
        self.notified: set[str] = set()  # tokens that were notified and have not come back
        self.at = 0.0  # when the last notification came


class HerdDamper:
    """Decides which calls a notification for anyone reaches. Callers bring the time and a lock."""

    def __init__(self) -> None:
        self._races: OrderedDict[str, _Race] = OrderedDict()
        self._skipped: dict[WaitHandle, float] = {}

    def registered(self, handle: WaitHandle) -> None:
        """A call waits, perhaps again after it was notified in vain."""
        race = self._races.get(handle.key)
        if race is not None and handle.token in race.notified:
            race.notified.discard(handle.token)
            race.size = min(race.size + 1, LARGEST_ESTIMATE)

    def cancelled(self, handle: WaitHandle) -> None:
        """A call no longer waits."""
        self._skipped.pop(handle, None)

    def answering(self, key: str, handles: Sequence[WaitHandle], now: float) -> list[WaitHandle]:
        """Returns the calls to notify now; the others follow when they are `overdue`."""
        race, answering = self._race(key, now), []
        for handle in handles:
            if race.size > 1 and random.random() * race.size > 1:
                self._skipped[handle] = now + MAKE_UP_S * random.uniform(0.5, 1)
            else:
                self._skipped.pop(handle, None)
                race.notified.add(handle.token)
                answering.append(handle)
        return answering

    def overdue(self, now: float) -> list[WaitHandle]:
        """Returns the calls that were skipped and are to be notified by now."""
        late = [handle for handle, at in self._skipped.items() if at <= now]
        for handle in late:
            del self._skipped[handle]
        return late

    def next_at(self) -> float | None:
        """Returns when the next skipped call is overdue; None: there is none."""
        return min(self._skipped.values(), default=None)

    def _race(self, key: str, now: float) -> _Race:
        race = self._races.get(key)
        if race is None or now - race.at > GOOD_FOR_S:
            race = self._races[key] = _Race()
            if len(self._races) > REMEMBERED:
                self._races.popitem(last=False)
        elif race.notified:  # they have not come back: they have got it
            race.notified.clear()
            race.size = max(1.0, race.size * WON)
        race.at = now
        return race
