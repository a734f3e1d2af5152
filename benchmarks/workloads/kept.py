"""Many leases that one client keeps alive."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.crew import crew, locks_of
from benchmarks.harness import Column, Row, Scale, Turn, Workload, reason, row_of
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, Place
from benchmarks.wire import Wire, counted

PAGE_BYTES = resource.getpagesize()
WARM_UP, WARM_UP_TTL_S = 100, 0.6


class Kept(Workload):
    """What a lease costs while nothing happens to it."""

    name = "kept"
    title = "Leases kept alive by one client"
    about = (
        "One process holds so many leases with a ttl of 30 s and does nothing else for a period "
        "of renewal, a third of the ttl. Memory is the growth of the process, by lease, after a "
        "hundred others were kept and freed. No other library was measured."
    )
    quick = False
    columns = (
        Column("core", "% of one core", digits=2, scale=100),
        Column("requests", "requests a period", digits=0),
        Column("lease_bytes", "bytes a lease", digits=0),
        Column("lost", "lost", digits=0),
        Column("acquire_us", "µs to acquire one", digits=0),
    )
    size_name = "leases"

    def takes(self, contestant: type[Contestant]) -> bool:
        return contestant.kind == "ours" and issubclass(contestant, Peer)

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        part = 10 if store in EMULATED else 1
        return tuple(sorted({max(1, size // part) for size in scale.leases}))

    def rounds(self, scale: Scale, size: int) -> int:
        return 1

    def open(self, entrant: Entrant, size: int, scale: Scale) -> AbstractContextManager[Turn]:
        raise NotImplementedError  # all sizes run at once

    def run(self, entrants: Sequence[Entrant], scale: Scale) -> Iterator[Row]:
        """All sizes side by side: a period takes as long for one lease as for thousands."""
        [entrant] = entrants
        sizes = self.sizes(scale, entrant.place.store)
        found: list[dict[str, list[float]]] = [{} for _ in sizes]
        error = ""
        try:
            found = _keep(entrant, sizes, scale.ttl_s)
        except Exception as trouble:
            error = reason(trouble)
        for size, values in zip(sizes, found, strict=True):
            row = row_of(self.name, entrant, size, values)
            row.error = error
            yield row


def _keep(entrant: Entrant, sizes: Sequence[int], ttl_s: float) -> list[dict[str, list[float]]]:
    period_s = ttl_s / 3
    with ExitStack() as stack:
        keepers = [_Keeper(stack, entrant, size) for size in sizes]
        for keeper in keepers:
            keeper.worker.ask(take, keeper.size, ttl_s)
        for keeper in keepers:
            keeper.note(keeper.worker.answer())
        time.sleep(period_s / 5)  # let things settle
        for keeper in keepers:
            keeper.start(period_s)
        return [keeper.finish() for keeper in keepers]


class _Keeper:
    """A process with so many leases, and what it asks of the engine meanwhile."""

    def __init__(self, stack: ExitStack, entrant: Entrant, size: int) -> None:
        self.size = size
        wire = stack.enter_context(_counted(entrant.place))
        self._count = wire.count
        [self.worker] = stack.enter_context(crew(replace(entrant, place=wire.place), 1))
        self._values: dict[str, list[float]] = {}

    def note(self, figures: dict[str, float]) -> None:
        self._values |= {name: [value] for name, value in figures.items()}

    def start(self, seconds: float) -> None:
        self._before = self._count()
        self.worker.ask(watch, seconds)

    def finish(self) -> dict[str, list[float]]:
        self.note(self.worker.answer())
        if self._before or self._count():
            self.note({"requests": float(self._count() - self._before)})
        return self._values


def _counted(place: Place) -> AbstractContextManager[Wire]:
    return counted(place) if place.port else nullcontext(Wire(place))


_leases: list[Any] = []  # in the keeper's process
_before: list[int] = []


def take(peer: Peer, size: int, ttl_s: float) -> dict[str, float]:
    """In a process: acquire them all."""
    locks = locks_of(peer)
    _warm_up(locks, size)
    _before.append(_resident())
    started = time.perf_counter()
    _leases.extend(locks.acquire(f"kept/{size}/{number}", ttl=ttl_s) for number in range(size))
    return {"acquire_us": (time.perf_counter() - started) / size * 1e6}


def _warm_up(locks: Any, size: int) -> None:
    """What is made once is not a lease's: connections, also those of the threads that renew."""
    leases = [
        locks.acquire(f"warm-up/{size}/{number}", ttl=WARM_UP_TTL_S) for number in range(WARM_UP)
    ]
    ends_at = time.monotonic() + WARM_UP_TTL_S / 2
    while time.monotonic() < ends_at and any(
        lease.hold.renewed == lease.hold.acquired for lease in leases
    ):
        time.sleep(0.01)
    for lease in leases:
        lease.release()


def watch(peer: Peer, seconds: float) -> dict[str, float]:
    """Do nothing for a while; what that cost."""
    cpu, wall = time.process_time(), time.monotonic()
    time.sleep(seconds)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    grown = _resident() - _before[0]
    figures = {
        "core": cpu / wall,
        "lost": float(sum(not lease.held for lease in _leases)),
        "lease_bytes": max(0.0, grown / len(_leases)),
    }
    _leases.clear()  # nobody refers to them any more: they run out
    return figures


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
