"""An acquire and a release that nobody is in the way of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, repeat
from typing import ClassVar
from uuid import uuid4

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant

COLUMNS = (
    Column("wall_us", "µs a pair"),
    Column("cpu_us", "CPU of the client, µs"),
    Column("pair", "requests", digits=0, of="requests"),
)


class WarmPair(Workload):
    """The same key again and again."""

    name = "pair"
    title = "An uncontended acquire and release"
    about = (
        "One thread takes and frees the same lock again and again. The lines in italics are the "
        "floor: two trips of the cheapest command that could make a lock on this engine, without a "
        "lock library. The requests are those of another table, below."
    )
    columns: ClassVar[tuple[Column, ...]] = COLUMNS
    quick_for_all = True

    def takes(self, contestant: type[Contestant]) -> bool:
        return issubclass(contestant, Peer)

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.rounds

    def keys(self) -> Iterator[str]:
        """The keys to lock, one after the other."""
        return repeat("warm")

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with entrant.peer() as peer:
            keys = self.keys()
            calls = calls_for(scale.turn_s, lambda: _pairs(peer, keys, 1))
            yield lambda: _pairs(peer, keys, calls)


class ColdPair(WarmPair):
    """A new key each time."""

    name = "cold"
    title = "An uncontended pair, with a new key each time"
    about = (
        "An uncontended acquire and release of keys that nobody has ever locked: nothing is known "
        "of them, nothing can be reused."
    )
    columns = COLUMNS[:2]
    quick_for_all = False

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and contestant.kind != "floor"

    def keys(self) -> Iterator[str]:
        run = uuid4().hex[:8]
        return (f"cold/{run}/{number}" for number in count())


def _pairs(peer: Peer, keys: Iterator[str], calls: int) -> Figures:
    lock = peer.lock
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        with lock(next(keys)):
            pass
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"wall_us": wall / calls * 1e6, "cpu_us": cpu / calls * 1e6}


def calls_for(seconds: float, one: Turn) -> int:
    """How many calls fill a turn; also warms up."""
    found: list[float] = []
    ends_at = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < ends_at:
        wall_us = one()["wall_us"]
        assert isinstance(wall_us, float)
        found.append(wall_us)
    return max(3, round(seconds / (sorted(found)[len(found) // 2] / 1e6)))
