"""A small pool of daemon threads.

Unlike in the standard executor, a call that hangs does not keep the interpreter from ending.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

R = TypeVar("R")
_Call = Callable[[], Any]

logger = logging.getLogger("holdfast")


class DaemonPool:
    """Runs calls in at most `most` threads, and starts a thread only when none is idle.

    A call after `close()` gets a thread of its own, so that nobody waits in vain.
    """

    _threads = 0  # also of one whose making was interrupted

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._work: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0  # threads without a call; if negative, how many calls are queued
        self._closed = False

    def run(self, call: _Call) -> None:
        """Run a call in one of the threads, without waiting. Thousands may be queued."""
        with self._lock:
            if self._closed:
                self._start(partial(_run, call))
                return
            if self._idle <= 0 and self._threads < self._most:
                self._start_another()
            self._idle -= 1
            self._work.put(call)

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Run a call in one of the threads. Returns a future of its result."""
        from concurrent.futures import Future

        future: Future[R] = Future()
        self.run(partial(settle, future, call))
        return future

    def close(self) -> None:
        """Let the threads end after the calls that are queued."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._work.put(None)
            self._threads = 0

    def _start_another(self) -> None:
        try:
            self._start(partial(_serve, self._work, weakref.ref(self)))
        except RuntimeError:  # no thread can be started: the call is queued for another one
            if self._threads == 0:
                raise
        else:
            self._threads += 1
            self._idle += 1

    def _start(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=self._name, daemon=True).start()

    def __del__(self) -> None:
        # No more calls can come. It takes no lock, because it may run at any instruction.
        for _ in range(self._threads):
            self._work.put(None)


def _serve(work: SimpleQueue[_Call | None], pool_of: Callable[[], DaemonPool | None]) -> None:
    """Run queued calls. An idle thread does not keep its pool alive."""
    while (call := work.get()) is not None:
        _run(call)
        del call
        pool = pool_of()
        if pool is not None:
            with pool._lock:
                pool._idle += 1
        del pool


def _run(call: _Call) -> None:
    try:
        call()
    except BaseException:  # nobody else would learn of it, and the thread must go on
        logger.exception("A call in the background failed")


def settle(future: Future[Any], call: _Call) -> None:
    """Make a call, unless its future was cancelled, and tell the future what came of it."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as exc:  # raised to the caller that waits for the future
            future.set_exception(exc)
