"""Contestants in turns, round after round, so that a noisy machine hits all alike."""

from __future__ import annotations

import gc
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant, Kind
from benchmarks.sites import Place

Figures = dict[str, float | list[float]]
Turn = Callable[[], Figures]


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    name: str
    rounds: int  # of the short workloads
    turn_s: float  # how long a turn of them lasts, roughly
    long_rounds: int  # of those with many processes
    long_turn_s: float
    hand_overs: int
    contenders: tuple[int, ...]
    leases: tuple[int, ...]
    ttl_s: float  # of the leases that are kept
    listed: tuple[int, ...]
    crowd: int = 100  # processes that wait for one lock
    crowd_s: float = 20.0
    crowd_threads: int = 300  # the same as threads of one process
    crowd_threads_s: float = 10.0
    idle: int = 20  # processes that only wait
    idle_s: float = 10.0
    queue: int = 300  # places in a long queue
    together_rounds: int = 1  # of many threads or tasks of one process
    together_s: float = 1.0  # long enough that everybody has a turn
    starts: int = 2  # new interpreters, of each kind


FULL = Scale(
    "full", rounds=11, turn_s=0.06, long_rounds=3, long_turn_s=0.8, hand_overs=15,
    contenders=(8, 32), leases=(1, 10, 100, 1000, 10_000), ttl_s=30.0,
    listed=(2_000, 20_000), together_rounds=3, starts=9,
)  # fmt: skip
QUICK = Scale(
    "quick", rounds=5, turn_s=0.01, long_rounds=1, long_turn_s=0.2, hand_overs=2,
    contenders=(8,), leases=(200,), ttl_s=1.5, listed=(2000,), together_s=0.3,
)  # fmt: skip
TINY = Scale(
    "tiny", rounds=2, turn_s=0.001, long_rounds=1, long_turn_s=0.05, hand_overs=2,
    contenders=(1, 2), leases=(1, 10), ttl_s=1.0, listed=(10, 600), crowd=3, crowd_s=0.3,
    crowd_threads=3, crowd_threads_s=0.3, idle=2, idle_s=0.3, queue=5,
)  # fmt: skip
SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}


# --- figures --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stat:
    """What is left of the values of all rounds."""

    median: float
    low: float  # the quartiles
    high: float
    p99: float
    worst: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat:
        """Of at least one value."""
        ordered = sorted(values)
        low, median, high = (_quantile(ordered, part) for part in (0.25, 0.5, 0.75))
        return cls(median, low, high, _quantile(ordered, 0.99), ordered[-1], len(ordered))

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a part of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def _quantile(ordered: Sequence[float], part: float) -> float:
    if len(ordered) == 1:
        return ordered[0]
    return statistics.quantiles(ordered, n=100, method="inclusive")[round(part * 100) - 1]


@dataclass(frozen=True)
class Column:
    """A figure in a table: which, how it is called, and which way is better."""

    figure: str
    title: str
    better: Literal["less", "more", ""] = "less"
    stat: Literal["median", "p99", "worst"] = "median"
    digits: int = 1
    scale: float = 1.0
    of: str = ""  # the workload that it is taken from, if it was measured by another one


@dataclass
class Row:
    """What one contestant did in one workload."""

    workload: str
    store: str
    contestant: str
    kind: Kind
    size: int  # contenders, leases or locks, where a workload has them
    figures: dict[str, Stat] = field(default_factory=dict)
    error: str = ""

    def value(self, column: Column) -> float | None:
        """What stands in a column, in its unit."""
        stat = self.figures.get(column.figure)
        return None if stat is None else getattr(stat, column.stat) * column.scale


# --- running --------------------------------------------------------------------------------


class Workload(ABC):
    """One question. `open` prepares one contestant; what it gives is then called in turns."""

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]  # the first one is what it is about
    size_name: ClassVar[str] = ""
    processes: ClassVar[bool] = False  # whether several processes must see the store
    quick: ClassVar[bool] = True  # whether a quick run has time for it
    quick_for_all: ClassVar[bool] = False  # also a quick run has all contestants

    def fits(self, place: Place) -> bool:
        """Whether it makes sense at a place."""
        return place.processes or not self.processes

    def takes(self, contestant: type[Contestant]) -> bool:
        """Who takes part: all blocking ones that are locks, unless it says otherwise."""
        return issubclass(contestant, Peer) and contestant.kind != "floor"

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        """The sizes to run at; the table shows the one of `main_size`."""
        return (0,)

    def main_size(self, sizes: Iterable[int]) -> int:
        """Which of the sizes that were run is the one in the table."""
        return max(sizes)

    @abstractmethod
    def rounds(self, scale: Scale, size: int) -> int:
        """How many turns each has."""

    @abstractmethod
    def open(self, entrant: Entrant, size: int, scale: Scale) -> AbstractContextManager[Turn]:
        """Prepare."""

    def run(self, entrants: Sequence[Entrant], scale: Scale) -> Iterator[Row]:
        """Measure all, in turns."""
        for size in self.sizes(scale, entrants[0].place.store):
            yield from self._race(self.at(size, entrants), size, scale)

    def at(self, size: int, entrants: Sequence[Entrant]) -> Sequence[Entrant]:
        """Who takes part at this size."""
        return entrants

    def _race(self, entrants: Sequence[Entrant], size: int, scale: Scale) -> Iterator[Row]:
        with ExitStack() as stack:
            lanes = [_Lane(self, entrant, size) for entrant in entrants]
            for lane in lanes:
                lane.open(stack, scale)
            gc.collect()
            gc.freeze()  # or else each turn begins with a walk through all that was imported
            for number in range(self.rounds(scale, size)):
                # Every other round backwards, so that nobody is always after the same one.
                for lane in lanes if number % 2 == 0 else reversed(lanes):
                    lane.turn()
            yield from (lane.row() for lane in lanes)


class _Lane:
    """One contestant in one race. Who fails is out, with the reason, and the others go on."""

    def __init__(self, workload: Workload, entrant: Entrant, size: int) -> None:
        self._workload, self._entrant, self._size = workload, entrant, size
        self._turn: Turn | None = None
        self._values: dict[str, list[float]] = {}
        self._error = ""

    def open(self, stack: ExitStack, scale: Scale) -> None:
        opened = self._workload.open(self._entrant, self._size, scale)
        self._turn = self._try(lambda: stack.enter_context(opened))

    def turn(self) -> None:
        if self._turn is None:
            return
        gc.collect()
        figures = self._try(self._turn)
        if figures is None:
            self._turn = None
            return
        for name, values in figures.items():
            some = values if isinstance(values, list) else [values]
            self._values.setdefault(name, []).extend(some)

    def row(self) -> Row:
        kind = self._entrant.contestant
        row = row_of(self._workload.name, self._entrant, self._size, self._values)
        row.error = self._error and f"{kind.name}: {self._error}"
        return row

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as trouble:
            self._error = reason(trouble)
            return None


def row_of(workload: str, entrant: Entrant, size: int, values: dict[str, list[float]]) -> Row:
    """A row of the values of all rounds."""
    kind = entrant.contestant
    stats = {name: Stat.of(found) for name, found in values.items() if found}
    return Row(workload, entrant.place.store, kind.name, kind.kind, size, stats)


def reason(trouble: BaseException) -> str:
    """Why somebody could not take part, in a line."""
    text = str(trouble).strip().split("\n")[0]
    if isinstance(trouble, ImportError):
        return f"not installed ({text})"
    return f"{type(trouble).__name__}: {text}"[:300]
