"""The same with a network between the clients and the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.distance import far_away
from benchmarks.harness import Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, Place
from benchmarks.workloads.contended import CONTENDERS, Contended
from benchmarks.workloads.pair import WarmPair
from benchmarks.workloads.together import (
    TASK_KEYS,
    TASKS,
    THREAD_KEYS,
    THREADS,
    TasksTogether,
    ThreadsTogether,
    Together,
)

ABOUT = "As above, but each request takes {0} longer, as to a server {1}."
NEAR_S, NEAR = 0.0005, ABOUT.format("0.5 ms", "on another machine of the same site")
FAR_S, FAR = 0.005, ABOUT.format("5 ms", "at another site")


class _Distant(Workload):
    """What they have in common: only servers, and only the peers that the pictures show."""

    round_trip_s: float

    def fits(self, place: Place) -> bool:
        # An emulator needs several milliseconds for a request anyway.
        return bool(place.port) and place.store not in EMULATED

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and (contestant.kind != "peer" or contestant.prominent)

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with far_away(entrant.place, self.round_trip_s) as far:
            there = replace(entrant, place=far.place)
            with super().open(there, size, scale) as turn:  # type: ignore[safe-super]
                yield self.counting(turn, far.count)

    def counting(self, turn: Turn, count: Callable[[], int]) -> Turn:
        """The turn as it is, unless the requests of a turn are those of its locks."""
        return turn


class NearPair(_Distant, WarmPair):
    """Half a millisecond: another machine of the same site."""

    name = "near"
    title = "An uncontended pair, with 0.5 ms of round trip added"
    about = NEAR
    round_trip_s = NEAR_S
    quick_for_all = False


class FarPair(NearPair):
    """Five milliseconds: another site nearby."""

    name = "far"
    title = "An uncontended pair, with 5 ms of round trip added"
    about = FAR
    round_trip_s = FAR_S
    quick = False


class _DistantTogether(_Distant, Together):
    """The proxy counts their requests, too."""

    columns = Together.columns
    quick = False

    def rounds(self, scale: Scale, size: int) -> int:
        return 1

    def counting(self, turn: Turn, count: Callable[[], int]) -> Turn:
        def counted() -> Figures:
            before = count()
            figures = turn()
            locks = figures["locks"]
            assert isinstance(locks, float)
            return figures | {"requests": (count() - before) / locks}

        return counted


_THREADS = f"{THREADS} threads of one process on {THREAD_KEYS} keys"
_TASKS = f"{TASKS} tasks of one process on {TASK_KEYS} keys"


class NearThreadsTogether(_DistantTogether, ThreadsTogether):
    """Many threads of one process."""

    name = "near-threads-together"
    title = f"{_THREADS}, with 0.5 ms of round trip added"
    about = NEAR
    round_trip_s = NEAR_S


class FarThreadsTogether(NearThreadsTogether):
    """Five milliseconds."""

    name = "far-threads-together"
    title = f"{_THREADS}, with 5 ms of round trip added"
    about = FAR
    round_trip_s = FAR_S


class NearTasksTogether(_DistantTogether, TasksTogether):
    """Many tasks of one process."""

    name = "near-tasks-together"
    title = f"{_TASKS}, with 0.5 ms of round trip added"
    about = NEAR
    round_trip_s = NEAR_S


class FarTasksTogether(NearTasksTogether):
    """Five milliseconds."""

    name = "far-tasks-together"
    title = f"{_TASKS}, with 5 ms of round trip added"
    about = FAR
    round_trip_s = FAR_S


class NearContended(_Distant, Contended):
    """Many processes that want one key."""

    name = "near-contended"
    title = f"{CONTENDERS} processes, one key, with 0.5 ms of round trip added"
    about = NEAR
    round_trip_s = NEAR_S
    quick = False

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (min(CONTENDERS, max(scale.contenders)),)

    def rounds(self, scale: Scale, size: int) -> int:
        return min(2, scale.long_rounds)


class FarContended(NearContended):
    """Five milliseconds."""

    name = "far-contended"
    title = f"{CONTENDERS} processes, one key, with 5 ms of round trip added"
    about = FAR
    round_trip_s = FAR_S
