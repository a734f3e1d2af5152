"""A store that goes wrong on purpose, from a seed: for testing *your* code.

Does your job stop when its lease is lost? Does it survive a store that is slow, or that
does not answer? `ChaosStore` wraps any store and makes such things happen:

    store = ChaosStore(MemoryStore(), seed=7, lose_leases=0.05, lose_replies=0.1)
    locks = holdfast.connect(store)

Each number is the chance, per request, that

    lose_requests   the request never reaches the store; `OutcomeUnknown`
    lose_replies    the store carries it out, and no answer comes; `OutcomeUnknown`
    refuse          the store refuses it, surely not done; `Unavailable`
    delay           the request or its reply takes up to `longest_delay` seconds longer
    lose_leases     the holder of the key is evicted just before the request

Two faults happen when you ask for them: `lose(key)` evicts the holder of a key now, and `cut()`
makes the store unreachable until `mend()`.

With the same seed and the same order of requests, the same things go wrong. Threads send their
requests in an order that differs from run to run: a test that needs one certain fault uses `lose`
and `cut`, or `holdfast.testing.faults.FaultyStore`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from threading import Lock
from typing import Any, TypeVar

from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.commands import NOBODY, Command, Evict, Evicted, Stamp, Wake
from holdfast.core.contract import Amended, Applied, Change, Conflict, Entry, Found, Page, Version
from holdfast.core.records import NEVER, Holder, Micros, Record
from holdfast.errors import BadOption, OutcomeUnknown, Unavailable
from holdfast.runtime import keeper_thread
from holdfast.stores.base import Outcome, Store
from holdfast.stores.deadlines import seconds_left, unanswered
from holdfast.stores.url import StoreURL

R = TypeVar("R")

OPERATOR, REASON = "ChaosStore", "lost on purpose"
# Trouble that has a cause is known to come from the store.
_LINE_CUT = ConnectionError("chaos")
WHY = f"it was evicted by {OPERATOR}: {REASON}"


class ChaosStore(Store):
    """Wraps a store and makes requests fail at random, from a seed."""

    def __init__(
        self,
        store: Store,
        *,
        seed: int = 0,
        lose_requests: float = 0.0,
        lose_replies: float = 0.0,
        refuse: float = 0.0,
        delay: float = 0.0,
        longest_delay: float = 0.1,
        lose_leases: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._chances = {
            "lose_requests": lose_requests,
            "lose_replies": lose_replies,
            "refuse": refuse,
            "delay": delay,
            "lose_leases": lose_leases,
        }
        for name, chance in self._chances.items():
            if not 0 <= chance <= 1:
                raise BadOption(f"{name} is a chance between 0 and 1, not {chance!r}.")
        self.facts = replace(store.facts, native_async=False)
        self.happened: Counter[str] = Counter()  # how often what went wrong
        self._longest_delay = longest_delay
        self._sleep = sleep
        self._rng = Random(seed)
        self._lock = Lock()
        self._cut = False

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> ChaosStore:
        """It is made around an open store, never from a URL."""
        raise BadOption("A ChaosStore is made around an open store: ChaosStore(store, seed=1).")

    # --- trouble on command -------------------------------------------------------------------

    def lose(self, key: str) -> int:
        """Evict the holders of a key now. Returns how many there were.

        Those in this process, of clients of this store, are told at once. Others learn of it at
        their next renewal, as after any eviction.
        """
        evicted = self._evict(key)
        tokens = {holder.token for holder in evicted}
        for keeper in list(keeper_thread.everyone):
            for hold in keeper.holds():
                if hold.key == key and hold.token in tokens:
                    keeper.lose(hold, WHY)
        return len(evicted)

    def _evict(self, key: str) -> tuple[Holder, ...]:
        entry = self._store.load(key)
        if self.facts.scripted:
            verdict = self._store.apply(key, _everyone(entry), "chaos").verdict
            return verdict.holders if isinstance(verdict, Evicted) else ()
        while True:
            at = entry.now.latest if entry.now is not None else entry.record.fence + 1
            stamp = Stamp(at, "chaos", clocked=entry.now is not None)
            decision = rules.decide(_everyone(entry), entry.record, lambda party: False, stamp)
            if decision.record is None:
                return ()
            outcome = self._store.swap(key, entry.version, decision.record, decision.wake)
            if not isinstance(outcome, Conflict):
                return entry.record.holders
            entry = outcome.entry

    def cut(self) -> None:
        """Make the store unreachable."""
        self._cut = True

    def mend(self) -> None:
        """Make the store reachable again."""
        self._cut = False

    # --- a store ------------------------------------------------------------------------------

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """Load, if nothing goes wrong."""
        return self._ask(key, by, lambda: self._store.load(key, by))

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Swap, if nothing goes wrong."""
        return self._ask(key, by, lambda: self._store.swap(key, version, record, wake, by))

    def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """Amend, if nothing goes wrong."""
        return self._ask(key, by, lambda: self._store.amend(key, change, by))

    def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        """Run a command, if nothing goes wrong."""
        return self._ask(key, by, lambda: self._store.apply(key, command, beat, by))

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """Scan, if nothing goes wrong."""
        return self._ask(None, by, lambda: self._store.scan(prefix, cursor, limit, by))

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        """Wait; nothing goes wrong with that."""
        return self._store.wait(key, version, token, at_most)

    def setup(self) -> None:
        """Set the store up; nothing goes wrong with that."""
        self._store.setup()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def abandon(self) -> None:
        """After a fork, in the child."""
        self._store.abandon()

    def for_child(self) -> ChaosStore:
        """Returns the same for a forked child, where other things go wrong."""
        return ChaosStore(
            self._store.for_child(),
            seed=os.getpid(),
            longest_delay=self._longest_delay,
            sleep=self._sleep,
            **self._chances,
        )

    # --- chance -------------------------------------------------------------------------------

    def _ask(self, key: str | None, by: Micros, call: Callable[[], R]) -> R:
        if self._cut:
            raise Unavailable("The store was cut off on purpose.") from _LINE_CUT
        goes_wrong, late_by = self._draw()
        if key is not None and "lose_leases" in goes_wrong:
            self._evict(key)
        if "refuse" in goes_wrong:
            raise Unavailable("The store refused on purpose.") from _LINE_CUT
        if "lose_requests" in goes_wrong:
            raise OutcomeUnknown("The request was lost on purpose.") from _LINE_CUT
        if late_by > 0:
            self._pause(late_by, by)
        answer = call()
        if late_by < 0:
            self._pause(-late_by, by)
        if "lose_replies" in goes_wrong:
            raise OutcomeUnknown("The reply was lost on purpose.") from _LINE_CUT
        return answer

    def _pause(self, seconds: float, by: Micros) -> None:
        left = seconds_left(by)
        self._sleep(max(0.0, min(seconds, left)))
        if seconds > left:
            raise unanswered()

    def _draw(self) -> tuple[set[str], float]:
        """What goes wrong with this request, and how late it is (below 0: the reply)."""
        with self._lock:
            rng = self._rng
            wrong = {name for name, chance in self._chances.items() if rng.random() < chance}
            late_by = rng.uniform(-self._longest_delay, self._longest_delay)
            self.happened.update(wrong)
        return wrong, late_by if "delay" in wrong else 0.0


def _everyone(entry: Entry) -> Evict:
    fences = tuple(holder.fence for holder in entry.record.holders)
    return Evict(fences, OPERATOR, REASON)
