"""Many processes that want one key."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from benchmarks.apart import STORES, be_apart
from benchmarks.crew import together, warm_crew
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, Place

CONTENDERS = 8
WORK_S = 0.001
MOST_EMULATED = CONTENDERS


class Contended(Workload):
    """Throughput, fairness and the longest wait."""

    name = "contended"
    title = f"{CONTENDERS} processes, one key"
    about = (
        "Each process takes the lock, works for a millisecond, frees it, and works for another "
        "millisecond without it. The share is how many locks the luckiest process got, as a "
        "multiple of the median; if it is large, one process takes the lock again and again while "
        'the others sleep. "Held by two" is how often a process got the lock while another one had '
        "it. The requests were counted in a run of their own, below."
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("per_s", "locks a second", "more", digits=0),
        Column("share", "largest share ÷ median"),
        Column("longest_ms", "longest wait, ms", stat="worst", digits=0),
        Column("cpu_us", "CPU of the clients a lock, µs", digits=0),
        Column("requests", "requests a lock", of="crowd"),
        Column("overlaps", "held by two", stat="worst", digits=0),
    )
    size_name = "contenders"
    processes = True

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        most = MOST_EMULATED if store in EMULATED else max(scale.contenders)
        return tuple(size for size in scale.contenders if size <= most)

    def main_size(self, sizes: Iterable[int]) -> int:
        return CONTENDERS if CONTENDERS in sizes else max(sizes)

    def at(self, size: int, entrants: Sequence[Entrant]) -> Sequence[Entrant]:
        if size == CONTENDERS:
            return entrants
        return [entrant for entrant in entrants if entrant.contestant.prominent]

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.long_rounds if size == CONTENDERS else 1

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        def turn() -> Figures:
            # New processes for each turn: thirty-two for every contestant at once are too many.
            key, seconds = f"contended/{size}", scale.long_turn_s
            if size != CONTENDERS:
                seconds *= 0.6  # for a picture, not for the table
            with warm_crew(entrant, size, self.contend, key) as workers:
                return figures(together(workers, self.contend, key, seconds), seconds)

        yield turn

    @property
    def contend(self) -> Callable[..., Report]:
        """What each process does."""
        return contend


class Apart(Contended):
    """The same where no wake-up that stays on one machine arrives."""

    name = "apart"
    title = f"{CONTENDERS} processes, one key, each on a machine of its own"
    about = (
        "As above, but no process can wake another by what they have in common because they are on "
        "one machine; the network is as fast. Most users have several machines, or containers with "
        "a network of their own each. It makes no difference to the other libraries, and none to "
        "stores that are not here."
    )
    columns = tuple(column for column in Contended.columns if not column.of)
    quick = False

    def fits(self, place: Place) -> bool:
        return super().fits(place) and place.store in STORES

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and contestant.kind == "ours"

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (min(CONTENDERS, max(scale.contenders)),)

    @property
    def contend(self) -> Callable[..., Report]:
        return contend_apart


class Report(NamedTuple):
    """What one process did."""

    got: int  # locks, in time
    held: list[tuple[float, float]]  # from when to when
    longest_s: float  # that it waited
    cpu_s: float


def contend(peer: Peer, starts_at: float, key: str, seconds: float) -> Report:
    """In a process: take the lock again and again."""
    got, held, longest = 0, [], 0.0
    time.sleep(max(0.0, starts_at - time.monotonic()))
    cpu, ends_at = time.process_time(), starts_at + seconds
    while (asked := time.monotonic()) < ends_at:
        with peer.lock(key):
            since = time.monotonic()
            time.sleep(WORK_S)
            held.append((since, time.monotonic()))
        got += since < ends_at
        longest = max(longest, since - asked)
        time.sleep(WORK_S)
    return Report(got, held, longest, time.process_time() - cpu)


def contend_apart(peer: Peer, starts_at: float, key: str, seconds: float) -> Report:
    """The same in a process that nobody on this machine can wake."""
    be_apart()
    return contend(peer, starts_at, key, seconds)


def figures(reports: list[Report], seconds: float) -> Figures:
    """Of all of them."""
    counts = [report.got for report in reports]
    return {
        "per_s": sum(counts) / seconds,
        "share": max(counts) / max(1.0, statistics.median(counts)),
        "longest_ms": max(report.longest_s for report in reports) * 1e3,
        "cpu_us": sum(report.cpu_s for report in reports) / max(1, sum(counts)) * 1e6,
        "overlaps": float(overlaps([span for report in reports for span in report.held])),
    }


def overlaps(spans: list[tuple[float, float]]) -> int:
    """How often somebody got the lock while somebody else had it."""
    found, until = 0, 0.0
    for begins, ends in sorted(spans):
        found += begins < until
        until = max(until, ends)
    return found
