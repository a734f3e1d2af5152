"""From the release in one process to the return of a waiter in another."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.crew import Worker, crew
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Peer
from benchmarks.peers.base import Entrant

KEY = "handed"
A_TURN = 5


class HandOver(Workload):
    """How long a free lock waits for the one who waits for it."""

    name = "handover"
    title = "Hand-over to a waiting process"
    about = (
        "One process holds the lock, another has been waiting for it for 0.05 to 0.15 s, so that "
        "any phase of a poll is as likely. From the call to release to the waiter's return."
    )
    columns = (
        Column("latency_ms", "median, ms", digits=2),
        Column("latency_ms", "p99, ms", stat="p99", digits=2),
    )
    processes = True

    def rounds(self, scale: Scale, size: int) -> int:
        return max(1, scale.hand_overs // A_TURN)

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with crew(entrant, 2) as (holder, waiter):
            times = min(A_TURN, scale.hand_overs)
            _once(holder, waiter)
            yield lambda: _times(holder, waiter, times)


def _times(holder: Worker, waiter: Worker, times: int) -> Figures:
    return {"latency_ms": [_once(holder, waiter) * 1e3 for _ in range(times)]}


def _once(holder: Worker, waiter: Worker) -> float:
    holder.call(hold)
    waiter.ask(get)
    time.sleep(random.uniform(0.05, 0.15))
    released: float = holder.call(let_go)
    got: float = waiter.answer()
    return got - released


_held: list[AbstractContextManager[Any]] = []  # in the holder's process


def hold(peer: Peer) -> None:
    """In the first process: take it."""
    lock = peer.lock(KEY)
    lock.__enter__()
    _held.append(lock)


def let_go(peer: Peer) -> float:
    """Free it; when that was asked for."""
    lock = _held.pop()
    now = time.monotonic()
    lock.__exit__(None, None, None)
    return now


def get(peer: Peer) -> float:
    """In the second process: wait for it; when we had it."""
    with peer.lock(KEY):
        return time.monotonic()
