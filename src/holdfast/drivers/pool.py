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
    """Starts a thread when there is work and no idle one, up to a number of them.

    What is submitted after `close()` gets a thread of its own: nobody waits in vain.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Run this in one of the threads."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                self._start(self._run, (future, call))
                return future
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._most:
                self._start(self._serve)
                self._threads += 1
            self._work.put((future, call))
        return future

    def close(self) -> None:
        """Let the threads end after the work they have."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._work.put(None)
            self._threads = 0

    def _start(self, target: Callable[..., None], work: tuple[Any, ...] = ()) -> None:
        threading.Thread(target=target, args=work, name=self._name, daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            self._run(*work)
            del work
            with self._lock:
                self._idle += 1

    def _run(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as exc:  # handed to whoever waits for the future
                future.set_exception(exc)
