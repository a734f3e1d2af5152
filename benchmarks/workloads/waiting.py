"""A crowd that waits for one lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, Place
from tests.crowd import Crowd, run_crowd

HOLD_MS = 20.0
# MariaDB allows so many connections by default, and each client may open two.
FEWER = {"mysql": 60, "file": 60}


class Waiting(Workload):
    """Whether everybody is served, and how evenly."""

    name = "waiting"
    title = "A crowd of processes, one key"
    about = (
        f"Each process holds the lock for {HOLD_MS:g} ms, and all others wait meanwhile: "
        f"{1000 / HOLD_MS:.0f} locks a second would be ideal. The fair wait is everybody else's "
        "hold. `python -m tests.crowd` does the same."
    )
    columns = (
        Column("per_s", "locks a second", "more"),
        Column("unserved", "got none", stat="worst", digits=0),
        Column("longest", "longest wait ÷ fair wait", stat="worst"),
        Column("share", "largest share ÷ median"),
        Column("cpu_us", "CPU of the clients a lock, µs", digits=0),
    )
    size_name = "processes"
    processes = True
    quick = False

    def fits(self, place: Place) -> bool:
        return super().fits(place) and place.store not in EMULATED

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and contestant.kind == "ours"

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (min(scale.crowd, FEWER.get(store, scale.crowd)),)

    def rounds(self, scale: Scale, size: int) -> int:
        return 1

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        yield lambda: _turn(entrant.place, size, scale.crowd_s)


def _turn(place: Place, processes: int, seconds: float) -> Figures:
    result = run_crowd(place.url, Crowd(processes, seconds=seconds, hold_ms=HOLD_MS))
    return {
        "per_s": result.per_s,
        "unserved": float(result.unserved),
        "longest": result.longest_of_fair,
        "share": result.share,
        "cpu_us": result.cpu_us_a_lock,
    }
