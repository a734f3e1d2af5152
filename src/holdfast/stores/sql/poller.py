"""Waiting by looking: one thread per store asks for all keys that somebody waits for.

A key that was just begun to be waited for is looked at soon, and then ever more rarely,
at times that are a little random, so that many idle waiters cost the database little: one
short query per second and process at most once they have settled down.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.errors import HoldfastError
from holdfast.stores.wakeups import Sleeper, Wakeups

FIRST_NAP_S, LONGEST_NAP_S, SLOWING = 0.03, 1.0, 1.4
# With nobody waiting the thread stays for a moment, because the next one is often near.
LINGER_S = 2.0
# Keys that are due within this time are asked for together.
TOGETHER_S = 0.02
MOST_KEYS = 500

Turns = Callable[[Sequence[str]], dict[str, tuple[int, int]]]


class Poller:
    """Rings sleepers when they may have been let in."""

    def __init__(self, turns: Turns) -> None:
        self.sleepers = Wakeups()
        self._turns = turns
        self._changed = threading.Condition()
        self._due: dict[str, tuple[float, float]] = {}  # key: when to look, and the nap before
        self._running = False
        self._closed = False

    def add(self, sleeper: Sleeper) -> None:
        """Look after this one, soon."""
        self.sleepers.add(sleeper)
        with self._changed:
            if self._closed:
                sleeper.ring()
                return
            self._due[sleeper.key] = time.monotonic() + _jittered(FIRST_NAP_S), FIRST_NAP_S
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="holdfast-poll", daemon=True).start()
            self._changed.notify()

    def discard(self, sleeper: Sleeper) -> None:
        """No longer."""
        self.sleepers.discard(sleeper)

    def close(self) -> None:
        """End the thread, and let everyone look for themselves."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.sleepers.wake_all()

    def _run(self) -> None:
        while True:
            keys = self._next_keys()
            if keys is None:
                return
            if keys:
                self._look(keys)

    def _next_keys(self) -> list[str] | None:
        """Sleep until some keys are due; None: nobody waits any more."""
        with self._changed:
            waited_for = set(self.sleepers.keys())
            self._due = {key: due for key, due in self._due.items() if key in waited_for}
            now = time.monotonic()
            if not self._due and not self._closed:
                self._changed.wait(LINGER_S)
                if not self._due:
                    self._running = False
                    return None
            if self._closed:
                self._running = False
                return None
            keys = [key for key, (at, _) in self._due.items() if at <= now + TOGETHER_S]
            if not keys:
                self._changed.wait(max(0.0, min(at for at, _ in self._due.values()) - now))
            for key in keys[:MOST_KEYS]:
                nap = min(self._due[key][1] * SLOWING, LONGEST_NAP_S)
                self._due[key] = now + _jittered(nap), nap
            return keys[:MOST_KEYS]

    def _look(self, keys: list[str]) -> None:
        try:
            seen = self._turns(keys)
        except HoldfastError:
            # The sleepers meet the same trouble, and report it, when they look themselves.
            for key in keys:
                for sleeper in self.sleepers.sleepers(key):
                    sleeper.ring()
            return
        for key in keys:
            version, turn = seen.get(key, (None, None))
            for sleeper in self.sleepers.sleepers(key):
                if _may_have_changed(sleeper, version, turn):
                    sleeper.ring()


def _may_have_changed(sleeper: Sleeper, version: int | None, turn: int | None) -> bool:
    """The first look compares the version; later ones only what lets somebody in."""
    if sleeper.mark is None:
        sleeper.mark = (turn,)
        return bool(version != sleeper.version)
    return bool(sleeper.mark != (turn,))


def _jittered(nap: float) -> float:
    return random.uniform(0.7 * nap, nap)
