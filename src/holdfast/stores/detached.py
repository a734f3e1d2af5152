"""Blocking calls that their caller can stop waiting for.

Some drivers have no time-out for a single request, or cannot be interrupted while they wait. Their
calls run in daemon threads. The caller waits for the answer as long as it is of use; a signal
handler's exception reaches it at once, as it was raised. A call that was given up goes on until the
driver's own time-out, and nobody learns what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.core.records import Micros
from holdfast.runtime.pool import DaemonPool
from holdfast.stores.deadlines import not_sent, seconds_left, unanswered

R = TypeVar("R")

# A thread is only started for a call that finds no idle one.
MOST_THREADS = 256


class DetachedCalls:
    """Runs the calls of one store."""

    def __init__(self, name: str, most: int = MOST_THREADS) -> None:
        self._pool = DaemonPool(most, name)

    def run(self, call: Callable[[], R], by: Micros, *, writing: bool) -> R:
        """Returns what the call returns, or raises what it raises; or gives up when it is time."""
        try:
            future = self._pool.submit(call)
        except RuntimeError:  # the process cannot have another thread
            return call()
        try:
            return future.result(max(0.0, seconds_left(by)))
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # it was the call that raised this, or it has just ended
            raise not_sent() if future.cancel() else unanswered(writing=writing)  # noqa: B904

    def close(self) -> None:
        """Let the threads end when they are idle."""
        self._pool.close()
