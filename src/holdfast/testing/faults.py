"""A store that fails on cue: a test says what happens to the next calls.

`ChaosStore` fails at random, from a seed. This one is for a test that needs one certain failure.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import Amended, Applied, Change, Entry, Found, Page, Version
from holdfast.core.records import NEVER, Micros, Record
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.stores.base import Outcome, Store
from holdfast.stores.deadlines import seconds_left, unanswered
from holdfast.stores.url import StoreURL

R = TypeVar("R")

Fault = Literal[
    "fine",  # as if nothing were wrong
    "lose request",  # it never arrives, and nobody says so
    "lose reply",  # it is carried out, and nobody says so
    "refuse",  # the store says that it did not do it
    "deliver twice",  # it is carried out twice; the second answer comes back
    "hang",  # nothing happens until `release_hung()`; by then the caller may have given up
]
FAULTS: tuple[Fault, ...] = (
    "fine",
    "lose request",
    "lose reply",
    "refuse",
    "deliver twice",
    "hang",
)


class FaultyStore(Store):
    """Wraps a store. `plan(...)` says what happens to the next loads, swaps and commands."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.facts = store.facts
        self._planned: deque[Fault] = deque()
        self._always: Fault = "fine"
        self._released = threading.Event()
        self._lock = threading.Lock()
        self.calls: list[str] = []

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> FaultyStore:
        """It is made around an open store, never from a URL."""
        raise NotImplementedError

    def plan(self, *faults: Fault, then: Fault = "fine") -> None:
        """Plan one fault for each of the next calls, and `then` for all that follow."""
        with self._lock:
            self._planned = deque(faults)
            self._always = then
            self._released.clear()

    def release_hung(self) -> None:
        """Let the calls that hang go on."""
        self._released.set()

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        return self._do("load", by, lambda: self._store.load(key, by))

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        return self._do("swap", by, lambda: self._store.swap(key, version, record, wake, by))

    def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        return self._do("amend", by, lambda: self._store.amend(key, change, by))

    def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        return self._do("apply", by, lambda: self._store.apply(key, command, beat, by))

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        return self._store.scan(prefix, cursor, limit, by)

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        return self._store.wait(key, version, token, at_most)

    def setup(self) -> None:
        self._store.setup()

    def close(self) -> None:
        self._released.set()
        self._store.close()

    def abandon(self) -> None:
        self._store.abandon()

    def for_child(self) -> FaultyStore:
        return FaultyStore(self._store.for_child())

    def _do(self, name: str, by: Micros, call: Callable[[], R]) -> R:
        with self._lock:
            fault = self._planned.popleft() if self._planned else self._always
            self.calls.append(name)
        if fault == "refuse":
            raise Unavailable(f"Refused on purpose: {name}.") from ConnectionError(fault)
        if fault == "lose request":
            raise OutcomeUnknown(f"The request was lost on purpose: {name}.") from ConnectionError(
                fault
            )
        if fault == "hang" and not self._released.wait(seconds_left(by)):
            raise unanswered(writing=name != "load")
        answer = call()
        if fault == "lose reply":
            raise OutcomeUnknown(f"The reply was lost on purpose: {name}.") from ConnectionError(
                fault
            )
        return call() if fault == "deliver twice" else answer
