"""Readers and a writer now and then."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.crew import together, warm_crew
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.workloads.contended import WORK_S

PROCESSES, WRITES = 8, 0.1


class Readers(Workload):
    """How much readers gain from sharing, and how long writers wait for them."""

    name = "readers"
    title = f"{PROCESSES} processes that read and sometimes write"
    about = (
        f"One key; {1 - WRITES:.0%} of the locks are shared, {WRITES:.0%} exclusive, each held for "
        "a millisecond, with another millisecond of rest. Only libraries with shared locks."
    )
    quick = False
    columns = (
        Column("per_s", "locks a second", "more", digits=0),
        Column("writer_ms", "longest wait of a writer, ms", stat="worst", digits=0),
        Column("reader_ms", "longest wait of a reader, ms", stat="worst", digits=0),
    )
    processes = True

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and contestant.shares

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.long_rounds

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        def turn() -> Figures:
            with warm_crew(entrant, PROCESSES, read_and_write) as workers:
                found = together(workers, read_and_write, scale.long_turn_s)
            return {
                "per_s": sum(got for got, _, _ in found) / scale.long_turn_s,
                "writer_ms": max(writer for _, writer, _ in found) * 1e3,
                "reader_ms": max(reader for _, _, reader in found) * 1e3,
            }

        yield turn


def read_and_write(peer: Peer, starts_at: float, seconds: float) -> tuple[int, float, float]:
    """In a process: how many locks, and the longest waits of its writes and reads."""
    got, longest = 0, {True: 0.0, False: 0.0}
    time.sleep(max(0.0, starts_at - time.monotonic()))
    ends_at = starts_at + seconds
    while (asked := time.monotonic()) < ends_at:
        writes = random.random() < WRITES
        with peer.lock("readers") if writes else peer.shared("readers"):
            now = time.monotonic()
            longest[writes] = max(longest[writes], now - asked)
            got += now < ends_at
            time.sleep(WORK_S)
        time.sleep(WORK_S)
    return got, longest[True], longest[False]
