"""When locks are renewed, and when danger is reported.

The locks that are held at the beginning of a period are renewed one after the other: evenly spread
over the period, or a given number per second. One thread starts the renewals and never waits for
them; they run in a small pool. Another thread looks for locks in danger, also while renewals hang.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.dropin.python_dynamodb_lock.models import DynamoDBLock, logger
from holdfast.runtime.pool import DaemonPool

BEAT_THREADS = 4
ADAPTIVE = -1
# How long a renewal that is under way may take to end, after a stop or an interrupt.
GRACE_S = 2.0


class Heartbeat:
    """Renews the locks of one client until it is stopped."""

    def __init__(
        self,
        locks: Callable[[], Iterable[DynamoDBLock]],
        beat: Callable[[DynamoDBLock], None],
        check: Callable[[], float],
        period_s: float,
        beats_per_second: float,
        name: str,
    ) -> None:
        """`check` reports dangers, and returns after how many seconds to call it again."""
        self._locks = locks
        self._beat = beat
        self._check = check
        self._period_s = period_s
        self._beats_per_second = beats_per_second
        self._pool = DaemonPool(BEAT_THREADS, f"{name}-beat")
        self._under_way: set[DynamoDBLock] = set()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"{name}-{part}", daemon=True)
            for part, target in (("send", self._send), ("check", self._look))
        ]

    def start(self) -> None:
        """Start the two threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop. No renewal begins after this; one that is under way gets a moment to end."""
        self._stopped.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._pool.close()
        ends_at = time.monotonic() + GRACE_S
        while self._under_way and time.monotonic() < ends_at:
            time.sleep(0.01)

    def _send(self) -> None:
        self._stopped.wait(self._period_s)  # the first lock has just been written
        while not self._stopped.is_set():
            started = time.monotonic()
            locks = list(self._locks())
            gap = self._gap(len(locks))
            for count, lock in enumerate(locks, 1):
                self._submit(lock)
                if self._wait_until(started + count * gap):
                    return
            if time.monotonic() > started + self._period_s + gap:
                logger.warning("%d heartbeats took longer than the heartbeat period", len(locks))
            self._wait_until(started + self._period_s)

    def _gap(self, locks: int) -> float:
        if self._beats_per_second == ADAPTIVE:
            return self._period_s / max(1, locks)
        return 1 / self._beats_per_second

    def _submit(self, lock: DynamoDBLock) -> None:
        if lock in self._under_way:
            return  # its last beat hangs
        self._under_way.add(lock)
        try:
            self._pool.run(partial(self._run, lock))
        except RuntimeError:  # no thread to be had: it beats in the next period
            self._under_way.discard(lock)
            logger.warning("No heartbeat for %s", lock.unique_identifier, exc_info=True)

    def _run(self, lock: DynamoDBLock) -> None:
        try:
            self._beat(lock)
        finally:
            self._under_way.discard(lock)

    def _look(self) -> None:
        while not self._stopped.is_set():
            self._stopped.wait(self._check())

    def _wait_until(self, at: float) -> bool:
        return self._stopped.wait(max(0.0, at - time.monotonic()))
