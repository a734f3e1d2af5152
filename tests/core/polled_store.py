"""Clients that share one lock of a polled store, in virtual time and by the real steps.

Trips take a while, and whoever waits polls as the real stores do (`stores.waiting.pace`). Nothing
fails: this is about who gets the lock, and how often.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.commands import Claim, Free
from holdfast.core.contract import Conflict, Entry, Swapped, Version, exactly
from holdfast.core.effects import Draw, Load, Now, Sleep, Steps, Swap, Wait
from holdfast.core.holds import NO_BEAT, Attempt
from holdfast.core.observations import Observations
from holdfast.core.records import EMPTY, SECOND, Micros
from holdfast.core.releasing import release_steps
from holdfast.stores.dynamodb.versions import lets_in, next_version
from holdfast.stores.waiting.handles import WaitHandle
from holdfast.stores.waiting.pace import pause_s
from holdfast.stores.waiting.polling_store import POLLED

EPOCH: Micros = 10**6 * SECOND
WORK: Micros = 1000


class World:
    """One record, and a clock that goes from event to event."""

    def __init__(self, trip: Micros, rng: random.Random) -> None:
        self.now: Micros = 0
        self.rng = rng
        self._trip = trip
        self._events: list[tuple[Micros, int, Callable[[], object]]] = []
        self._number = 0
        self._record = EMPTY
        self._version: Version = None

    def later(self, delay: float, call: Callable[[], object]) -> None:
        """Call this after so many microseconds."""
        self._number += 1
        heapq.heappush(self._events, (self.now + int(delay), self._number, call))

    def run(self, until: Micros) -> None:
        """Let everything happen that happens by then."""
        while self._events[0][0] < until:
            self.now, _, call = heapq.heappop(self._events)
            call()

    def ask(self, request: Callable[[], Any], answer: Callable[[Any], object]) -> None:
        """A request arrives after half a trip, and its answer after another half."""

        def arrive() -> None:
            reply = request()
            self.later(self._half_a_trip(), lambda: answer(reply))

        self.later(self._half_a_trip(), arrive)

    def _half_a_trip(self) -> float:
        return self._trip * self.rng.uniform(0.3, 0.8)

    def load(self) -> Entry:
        """What is there."""
        return Entry(self._record, self._version, exactly(EPOCH + self.now))

    def swap(self, swap: Swap) -> Swapped | Conflict:
        """Write it, if it is still that version."""
        if swap.version != self._version:
            return Conflict(self.load())
        assert swap.record is not None
        self._record, self._version = swap.record, next_version(self._version, swap.wake)
        return Swapped(self._version, exactly(EPOCH + self.now))


class Client:
    """Takes the lock again and again, for a moment."""

    def __init__(self, world: World, name: str, pause: Micros = WORK) -> None:
        self.world, self.name, self._pause = world, name, pause
        self.got = 0
        self._knows = Observations(POLLED)
        self._token, self._since = "", 0
        self._waits = 0  # a poll of an earlier wait is void
        world.later(world.rng.uniform(0, WORK), self._acquire)

    def _acquire(self) -> None:
        self._token, self._since = f"{self.world.rng.getrandbits(128):032x}", self.world.now
        attempt = Attempt("k", Claim(self._token, self.name, "exclusive", 30 * SECOND))
        self._run(acquire_steps(self._knows, attempt, Terms(), self.world.now), self._hold)

    def _hold(self) -> None:
        [holder] = self.world.load().record.holders
        assert holder.token == self._token
        self.got += 1
        self.world.later(WORK, self._release)

    def _release(self) -> None:
        now, attempt = self.world.now, Attempt("k", Free(self._token), NO_BEAT)
        steps = release_steps(self._knows, attempt, now, now + SECOND)
        self._run(steps, lambda: self.world.later(self._pause, self._acquire))

    def _run(self, steps: Steps[Any], then: Callable[[], object], answer: Any = None) -> None:
        """Answer effects until there is something to wait for."""
        world = self.world
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration:
                then()
                return
            if isinstance(effect, (Sleep, Load, Swap, Wait)):
                self._wait_for(effect, partial(self._run, steps, then))
                return
            answer = None
            if isinstance(effect, Now):
                answer = world.now
            elif isinstance(effect, Draw):
                answer = f"{world.rng.getrandbits(8 * effect.size):0{2 * effect.size}x}"

    def _wait_for(self, effect: Sleep | Load | Swap | Wait, go_on: Callable[..., object]) -> None:
        world, sent = self.world, self.world.now
        if isinstance(effect, Sleep):
            world.later(effect.duration, go_on)
        elif isinstance(effect, Load):
            world.ask(world.load, lambda entry: go_on((entry, sent, world.now)))
        elif isinstance(effect, Swap):
            world.ask(partial(world.swap, effect), lambda done: go_on((done, world.now)))
        else:
            self._wait(effect, go_on)

    def _wait(self, wait: Wait, go_on: Callable[[Any], object]) -> None:
        self._waits += 1
        number, handle = self._waits, WaitHandle(wait.key, wait.version, wait.token, bool)

        def end() -> None:
            if number == self._waits:
                self._waits += 1
                go_on(handle.found)

        def poll() -> None:
            if number == self._waits:
                self.world.ask(self.world.load, saw)

        def saw(entry: Entry) -> None:
            if lets_in(handle, entry):
                end()
            else:
                nap()

        def nap() -> None:
            waited = (self.world.now - self._since) / SECOND
            self.world.later(pause_s(waited) * SECOND, poll)

        self.world.later(wait.at_most, end)
        nap()
