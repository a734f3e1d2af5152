"""A few daemon threads that run calls. Unlike the standard executor, a call that hangs
does not keep the interpreter from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
_Work = tuple["Future[Any]", Callable[[], Any]]


class DaemonPool:
    """Starts a thread when there is work and no idle one, up to a number of them."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Run this in one of the threads."""
        future: Future[R] = Future()
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        self._work.put((future, call))
        return future

    def close(self) -> None:
        """Let the threads end after the work they have."""
        with self._lock:
            threads, self._threads = self._threads, self._most
        for _ in range(threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as exc:  # handed to whoever waits for the future
                    future.set_exception(exc)
            del work, future, call
            with self._lock:
                self._idle += 1
