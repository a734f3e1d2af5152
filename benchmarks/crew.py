"""Processes for the workloads that need several, each with a contestant of its own.

They come from a fork server that has imported everything before, so that a hundred of them
start in a second, and share no connection with anybody.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.peers.base import Entrant
from benchmarks.peers.ours import Holdfast

ANSWER_WITHIN_S = 120.0
WARM_UP_S = 0.12
_context = multiprocessing.get_context("forkserver")


def preload(modules: Iterable[str]) -> None:
    """What the fork server is to import; only before its first process."""
    _context.set_forkserver_preload(["benchmarks.preload", *modules])


class CrewError(Exception):
    """Something went wrong in a process of the crew."""


class Worker:
    """One process. Ask it to run a function of a module; its first argument is the peer."""

    def __init__(self, entrant: Entrant) -> None:
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(theirs, entrant), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, function: Callable[..., Any], *args: Any) -> None:
        """Start it."""
        self._pipe.send((function, args))

    def answer(self) -> Any:
        """What came of it."""
        if not self._pipe.poll(ANSWER_WITHIN_S):
            raise CrewError(f"no answer within {ANSWER_WITHIN_S:g} s")
        try:
            good, answer = self._pipe.recv()
        except EOFError:
            raise CrewError("a process ended by itself") from None
        if not good:
            raise CrewError(answer)
        return answer

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Both."""
        self.ask(function, *args)
        return self.answer()

    def dismiss(self) -> None:
        """Send it home."""
        with suppress(OSError):
            self._pipe.send(None)

    def end(self) -> None:
        """See that it has gone."""
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5)
        self._pipe.close()


@contextmanager
def crew(entrant: Entrant, size: int) -> Iterator[list[Worker]]:
    """So many processes, all connected."""
    workers: list[Worker] = []
    try:
        for _ in range(size):
            workers.append(Worker(entrant))
        for worker in workers:
            worker.answer()
        yield workers
    finally:
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.end()


@contextmanager
def warm_crew(
    entrant: Entrant, size: int, function: Callable[..., Any], *args: Any
) -> Iterator[list[Worker]]:
    """The same after they have done it for a moment: connected also for waiting. How long they
    do it is the last argument."""
    with crew(entrant, size) as workers:
        together(workers, function, *args, WARM_UP_S)
        yield workers


def together(workers: list[Worker], function: Callable[..., Any], *args: Any) -> list[Any]:
    """The same in all of them, from the same moment on: it is the first argument."""
    starts_at = time.monotonic() + 0.02 + 0.001 * len(workers)
    for worker in workers:
        worker.ask(function, starts_at, *args)
    return [worker.answer() for worker in workers]


def _serve(pipe: Connection, entrant: Entrant) -> None:
    try:
        with quiet(), entrant.peer() as peer:
            pipe.send((True, None))
            while (job := pipe.recv()) is not None:
                function, args = job
                pipe.send((True, function(peer, *args)))
    except Exception as trouble:
        with suppress(OSError):
            pipe.send((False, f"{type(trouble).__name__}: {trouble}"))


@contextmanager
def quiet() -> Iterator[None]:
    """Without log lines and warnings, which some peers have many of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def locks_of(peer: Any) -> Any:
    """Our client in a peer, for what only we can do."""
    assert isinstance(peer, Holdfast)
    return peer.locks
