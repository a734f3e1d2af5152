"""A crowd that waits for one lock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.apart import STORES
from benchmarks.crew import crew, locks_of, together
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, Place
from tests.crowd import KEY, Crowd, Report, Result, prepared, summed_up, take_part

HOLD_MS = 20.0


class _Crowd(Workload):
    """What crowds have in common: only ours, once, not on emulators."""

    processes = True
    quick = False

    def fits(self, place: Place) -> bool:
        return super().fits(place) and place.store not in EMULATED

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and contestant.kind == "ours"

    def rounds(self, scale: Scale, size: int) -> int:
        return 1

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        yield lambda: _figures(_run(entrant, self.crowd(size, scale)))

    def crowd(self, size: int, scale: Scale) -> Crowd:
        """Who takes part."""
        raise NotImplementedError


def _run(entrant: Entrant, crowd: Crowd) -> Result:
    with prepared(entrant.place.url, crowd), crew(entrant, crowd.processes) as workers:
        found = together(workers, turns, crowd)
    reports = [report for reports in found for report in reports]
    return summed_up(reports, crowd.seconds, crowd.hold_ms / 1000)


def turns(peer: Peer, starts_at: float, crowd: Crowd) -> list[Report]:
    """In a process: all that its threads did."""
    locks = locks_of(peer)
    locks.show(KEY)
    time.sleep(max(0.0, starts_at - time.monotonic()))
    return take_part(locks, crowd, time.time() + crowd.seconds)


def _figures(result: Result) -> Figures:
    return {
        "per_s": result.per_s,
        "unserved": float(result.unserved),
        "longest": result.longest_of_fair,
        "share": result.share,
        "cpu_us": result.cpu_us_a_lock,
        "percent": result.cpu_percent_each,
    }


class Waiting(_Crowd):
    """Whether everybody is served, and how evenly."""

    name = "waiting"
    title = "A crowd of processes, one key"
    about = (
        f"Each process holds the lock for {HOLD_MS:g} ms, and all others wait meanwhile: "
        f"{1000 / HOLD_MS:.0f} locks a second would be ideal. The fair wait is the time in which "
        'each of them holds the lock once. "Got none" is how many never got the lock. Only '
        "Holdfast was measured. `python -m tests.crowd` does the same."
    )
    columns = (
        Column("per_s", "locks a second", "more"),
        Column("unserved", "got none", stat="worst", digits=0),
        Column("longest", "longest wait ÷ fair wait", stat="worst"),
        Column("share", "largest share ÷ median"),
        Column("cpu_us", "CPU of the clients a lock, µs", digits=0),
    )
    size_name = "processes"

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (scale.crowd,)

    def crowd(self, size: int, scale: Scale) -> Crowd:
        return Crowd(size, seconds=scale.crowd_s, hold_ms=HOLD_MS)


class WaitingApart(Waiting):
    """The same where no wake-up that stays on one machine arrives."""

    name = "waiting-apart"
    title = "A crowd of processes, one key, each on a machine of its own"
    about = (
        "As above, but no process can wake another by what they have in common because they "
        "are on one machine."
    )

    def fits(self, place: Place) -> bool:
        return super().fits(place) and place.store in STORES

    def crowd(self, size: int, scale: Scale) -> Crowd:
        return super().crowd(size, scale)._replace(apart=True)


class WaitingThreads(Waiting):
    """The same inside of one process."""

    name = "waiting-threads"
    title = "A crowd of threads of one process, one key"
    about = "As above, but the crowd are threads that share one client."
    size_name = "threads"

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (scale.crowd_threads,)

    def crowd(self, size: int, scale: Scale) -> Crowd:
        return Crowd(1, size, seconds=scale.crowd_threads_s, hold_ms=HOLD_MS)


class Idle(_Crowd):
    """What it costs to wait, while the lock is held for long."""

    name = "idle"
    title = "Processes that only wait"
    about = (
        "Somebody holds the lock all the time. The figure is the share of a core that each of the "
        "others takes, on stores without a server to wake them."
    )
    columns = (Column("percent", "% of a core, each", digits=2),)
    size_name = "processes"

    def fits(self, place: Place) -> bool:
        return super().fits(place) and not place.port  # a server wakes those who wait

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (scale.idle,)

    def crowd(self, size: int, scale: Scale) -> Crowd:
        return Crowd(size, seconds=scale.idle_s, idle=True)
