"""What contenders ask of the engine while they wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.crew import together, warm_crew
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers.base import Entrant
from benchmarks.sites import Place
from benchmarks.wire import counted
from benchmarks.workloads.contended import CONTENDERS, Report, contend, figures


class HerdDamper(Workload):
    """Requests by lock, of the holder and of all that wait for it."""

    name = "crowd"
    title = f"Requests of {CONTENDERS} contenders"
    about = (
        f"{CONTENDERS} processes contend as above, through a proxy that counts. The figure is all "
        "of their requests, divided by the locks that they got: what a service bills for. A lock "
        "that one process takes again and again while the others sleep also costs few requests, "
        "so the largest share stands beside it."
    )
    columns = (
        Column("requests", "requests a lock"),
        Column("reads", "of them reads"),
        Column("per_s", "locks a second", "more", digits=0),
        Column("share", "largest share ÷ median"),
    )
    processes = True
    quick = False

    def fits(self, place: Place) -> bool:
        return bool(place.port)  # statements of other processes cannot be counted

    def rounds(self, scale: Scale, size: int) -> int:
        return 1  # counts vary little

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        yield lambda: _contend(entrant, scale.long_turn_s)


def _contend(entrant: Entrant, seconds: float) -> Figures:
    with counted(entrant.place) as wire:
        entrant = replace(entrant, place=wire.place)
        with warm_crew(entrant, CONTENDERS, contend, "crowd") as workers:
            before = wire.counts()
            reports: list[Report] = together(workers, contend, "crowd", seconds)
            asked = wire.counts()
    # Also those who got the lock after the time had asked for it.
    locks = sum(len(report.held) for report in reports)
    each: Figures = {name: (asked[name] - before[name]) / locks for name in asked}
    return each | figures(reports, seconds)
