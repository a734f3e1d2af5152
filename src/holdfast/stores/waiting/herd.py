"""Who comes when a lock is free and many wait for it: not all of them.

A release that lets in anyone wakes every process that waits for the lock. If all of them come,
one gets it, and the requests of the others slow it down. They do not know of each other, but
each notices how it fares:

 1. Who was rung and sleeps again has lost a race: more take part in it than it thought. Who was
    rung and did not come back has won it: fewer do.
 2. Of the rings on a lock, each process answers one in as many as take part, by chance.
 3. A ring that was passed over is made up for a moment later, unless the next one comes first:
    it may be that everybody passed it over.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

from holdfast.stores.waiting.handles import WaitHandle

MOST = 16.0
WON = 0.7
# What was learnt of a lock is good for so long after the last ring.
GOOD_FOR_S = 1.0
REMEMBERED = 1000
# A ring that was passed over is made up for after at most this.
MAKE_UP_S = 0.006


class _Race:
    """What one process has learnt of one lock."""

    __slots__ = ("at", "notified", "size")

    def __init__(self) -> None:
        self.size = 1.0  # how many seem to take part
        self.notified: set[str] = set()  # the tokens of those who were rung and have not come back
        self.at = 0.0  # when it was last rung


class HerdDamper:
    """Decides who answers a ring that is for anyone. No clock; not safe for threads by itself."""

    def __init__(self) -> None:
        self._races: OrderedDict[str, _Race] = OrderedDict()
        self._passed_over: dict[WaitHandle, float] = {}

    def registered(self, handle: WaitHandle) -> None:
        """Somebody goes to sleep, perhaps again."""
        race = self._races.get(handle.key)
        if race is not None and handle.token in race.notified:
            race.notified.discard(handle.token)
            race.size = min(race.size + 1, MOST)

    def cancelled(self, handle: WaitHandle) -> None:
        """Somebody no longer sleeps."""
        self._passed_over.pop(handle, None)

    def answering(self, key: str, handles: Sequence[WaitHandle], now: float) -> list[WaitHandle]:
        """Who of those who sleep for a key is to be rung now; the others have their turn later."""
        race, answering = self._race(key, now), []
        for handle in handles:
            if race.size > 1 and random.random() * race.size > 1:
                self._passed_over[handle] = now + MAKE_UP_S * random.uniform(0.5, 1)
            else:
                self._passed_over.pop(handle, None)
                race.notified.add(handle.token)
                answering.append(handle)
        return answering

    def overdue(self, now: float) -> list[WaitHandle]:
        """Those who were passed over and have waited long enough."""
        late = [handle for handle, at in self._passed_over.items() if at <= now]
        for handle in late:
            del self._passed_over[handle]
        return late

    def next_at(self) -> float | None:
        """When somebody is overdue."""
        return min(self._passed_over.values(), default=None)

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
