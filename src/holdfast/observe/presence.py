"""Notices when the store of a client goes away, and when it is back.

While a store is away, every call and every renewal fails, again and again. Operators want to be
told twice: when it begins, and when it is over. So the first failure counts as the beginning, and
the first answer after it as the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.core.events import StoreAway, StoreBack, seconds
from holdfast.core.records import SECOND, Micros
from holdfast.runtime import clock

# For so long after its return a failure is no new absence: a request from before may only fail now.
SETTLES: Micros = 10 * SECOND


class StorePresence:
    """Whether one store answers. `tell` is called with `StoreAway` and `StoreBack`."""

    def __init__(self, tell: Callable[[StoreAway | StoreBack], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._since: Micros = 0
        self._back_at: Micros | None = None
        self.away = False

    def failed(self, error: str) -> None:
        """Note that the store did not do what it was asked to."""
        now = clock.monotonic()
        with self._lock:
            if self.away or (self._back_at is not None and now < self._back_at + SETTLES):
                return
            self.away, self._since = True, now
        self._tell(StoreAway(error))

    def answered(self) -> None:
        """Note that the store has answered. Only worth calling while it is away."""
        self._over(closed=False)

    def close(self) -> None:
        """Note that nobody asks the store any more. If it is away, that is over with it."""
        self._over(closed=True)

    def _over(self, *, closed: bool) -> None:
        now = clock.monotonic()
        with self._lock:
            if not self.away:
                return
            self.away, self._back_at = False, now
        self._tell(StoreBack(seconds(now - self._since), closed=closed))
