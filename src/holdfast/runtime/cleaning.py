"""Cleans up behind calls that were given up, in the background.

A call that fails, or is interrupted, may have left a grant or a place in the queue. Its caller
waits only for a moment until that is taken out, because the store may be the reason why the call
failed. What takes longer is done by a thread of the client, in both faces, for a bounded time;
after that the ttl frees what is left, and the log says so.

A request whose answer nobody waited for may be carried out after the clean-up. So where that is
possible, the clean-up is repeated once, a little later.

The thread that closes the client waits for calls that are under way: they find the client closed,
and take out what they have got, for which they need the connections. But a call that waits for a
lock learns only when the connections are gone that its client was closed. So the closing thread
takes out what such calls have left: a place in the queue, to which a lock may be granted at any
moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from holdfast.core.commands import Free
from holdfast.core.holds import NO_BEAT, Attempt
from holdfast.core.records import SECOND, Micros
from holdfast.runtime import clock
from holdfast.runtime.driver import Driver
from holdfast.runtime.pool import DaemonPool

# How long the store is tried in the background.
CLEAN_UP_FOR: Micros = 30 * SECOND
# When the clean-up behind a request without an answer is repeated.
AGAIN_AFTER_S = 2.0
CLEANERS = 4
# How often whoever closes the client looks whether calls that are awake have ended.
LOOK_S = 0.001


class Cleaning:
    """Removes what attempts have left in the store of one client."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._pool = DaemonPool(CLEANERS, "holdfast-cleaner")
        self._lock = threading.Lock()
        self._under_way: set[threading.Event] = set()
        self._again: list[Attempt] = []  # for a second time
        self._closed = threading.Event()
        # Calls that may get a lock or free one, from before they look whether the client is closed
        # until they have left nothing. Each is named by the id of its attempt.
        self.calls: set[int] = set()
        self._asleep: dict[str, str] = {}  # the keys of those that wait for a lock, by their tokens

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Clean up behind these attempts. Returns at once."""
        over = threading.Event()
        with self._lock:
            self._under_way.add(over)
        self._run(partial(self._clean, attempts, over))

    def repeat(self, attempts: Sequence[Attempt]) -> None:
        """Clean up once more, a little later, behind attempts whose requests had no answer."""
        if not attempts:
            return
        with self._lock:
            first = not self._again
            self._again += attempts
        if first:
            self._run(self._clean_again)

    def _run(self, clean: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the process cannot have another thread: the ttl frees it
            self._pool.run(clean)

    def close(self) -> None:
        """Repeat nothing any more; what is under way ends with its next try."""
        self._closed.set()
        self._pool.close()

    def busy(self) -> bool:
        """Whether anything is being cleaned up for the first time, or may have to be."""
        return bool(self._under_way or self.calls)

    # --- calls that are under way while the client is closed ----------------------------------

    def sleeps(self, key: str, token: str) -> None:
        """A call begins to wait for a lock."""
        self._asleep[token] = key

    def wakes(self, token: str) -> None:
        """The call goes on. What it leaves in the store, it takes out itself."""
        self._asleep.pop(token, None)

    def finish(self, until: Micros) -> None:
        """The client was closed: wait until nothing is left of any call, or the time is over. Then
        the ttl frees what is."""
        for token, key in list(self._asleep.items()):
            if clock.monotonic() < until:
                attempt = Attempt(key, Free(token), NO_BEAT, touched=True)
                self._driver.clean_up((attempt,), until)
        while len(self.calls) > len(self._asleep) and clock.monotonic() < until:
            time.sleep(LOOK_S)
        with self._lock:
            under_way = list(self._under_way)  # also what these calls have not managed
        for over in under_way:
            over.wait(max(0.0, (until - clock.monotonic()) / SECOND))

    # --- in a thread of the pool ----------------------------------------------------------------

    def _clean(self, attempts: Sequence[Attempt], over: threading.Event) -> None:
        unanswered = [attempt for attempt in attempts if attempt.touched and attempt.unsettled]
        try:
            self._driver.clean_up(attempts, clock.monotonic() + CLEAN_UP_FOR)
        finally:
            with self._lock:
                self._under_way.discard(over)
            over.set()
        self.repeat([attempt for attempt in unanswered if not attempt.touched])

    def _clean_again(self) -> None:
        """Run in one thread for all attempts that are to be repeated."""
        while not self._closed.wait(AGAIN_AFTER_S):
            with self._lock:
                attempts = list(self._again)
            for attempt in attempts:
                attempt.touched = True
                self._driver.clean_up((attempt,), clock.monotonic() + CLEAN_UP_FOR)
            with self._lock:
                del self._again[: len(attempts)]
                if not self._again:
                    return
