"""One run: store by store, workload by workload."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks import machine
from benchmarks.crew import preload
from benchmarks.harness import Row, Scale, Workload, reason
from benchmarks.peers import Contestant, contestants
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, SITES, Place
from benchmarks.workloads import WORKLOADS


@dataclass(frozen=True)
class Part:
    """When a store was measured, for how long, and how busy the machine was before."""

    started: str
    took_s: float
    load: float


@dataclass
class Results:
    """Everything that a run has found."""

    scale: str
    started: str
    machine: dict[str, str]
    versions: dict[str, str]
    engines: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    took_s: float = 0.0
    parts: dict[str, Part] = field(default_factory=dict)  # by store: those that are done

    @property
    def complete(self) -> bool:
        """Whether every store is done."""
        return set(self.parts) == set(SITES)

    def put(self, store: str, engine: str, rows: list[Row], part: Part | None) -> None:
        """Add what was found on a store, instead of what was there of it."""
        self.rows = [row for row in self.rows if row.store != store] + rows
        engines = self.engines | {store: engine}
        self.engines = {name: engines[name] for name in SITES if name in engines}
        if part is not None:
            self.parts[store] = part
            self.took_s = sum(one.took_s for one in self.parts.values())

    def row(
        self, workload: str, store: str, contestant: str, size: int | None = None
    ) -> Row | None:
        """The row of a contestant, by default the one that is in the table."""
        for found in self.table(workload, store) if size is None else self.of(workload, store):
            if found.contestant == contestant and (size is None or found.size == size):
                return found
        return None

    def of(self, workload: str, store: str) -> list[Row]:
        """All rows of a workload on a store."""
        return [row for row in self.rows if (row.workload, row.store) == (workload, store)]

    def table(self, workload: str, store: str) -> list[Row]:
        """Those at the size that is the workload's main one."""
        rows = self.of(workload, store)
        sizes = {row.size for row in rows if row.figures}
        if not sizes:
            return rows
        main = WORKLOADS[workload].main_size(sizes)
        return [row for row in rows if row.size == main or row.error]


@dataclass(frozen=True)
class Selection:
    """What of everything."""

    stores: tuple[str, ...]
    workloads: tuple[str, ...]
    contestants: tuple[str, ...]  # none: all

    @classmethod
    def of(cls, names: list[str], scale: Scale | None = None) -> Selection:
        """From names on the command line: of stores, workloads, contestants. A quick run has
        no time for emulators and for some workloads, unless they are named."""
        quick = scale is not None and scale.name == "quick"
        stores = tuple(name for name in SITES if not (quick and name in EMULATED))
        workloads = tuple(name for name, work in WORKLOADS.items() if work.quick or not quick)
        known = {kind.name for kind in contestants()}
        for name in names:
            if name not in SITES and name not in WORKLOADS and name not in known:
                raise SystemExit(f"There is no {name!r}: python -m benchmarks --list")
        return cls(
            tuple(name for name in SITES if name in names) or stores,
            tuple(name for name in WORKLOADS if name in names) or workloads,
            tuple(name for name in names if name in known),
        )

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return (self.stores, self.workloads, self.contestants) == (
            tuple(SITES), tuple(WORKLOADS), (),
        )  # fmt: skip

    def entrants(self, workload: Workload, place: Place, scale: Scale) -> list[Entrant]:
        """Who takes part in a workload at a place."""
        if not workload.fits(place):
            return []
        kinds = self.kinds(workload, place.store, scale)
        return [Entrant(kind, place) for kind in kinds]

    def kinds(self, workload: Workload, store: str, scale: Scale) -> list[type[Contestant]]:
        """The same for a store that is not there yet."""
        wanted = [kind for kind in contestants(store) if kind.only in ("", workload.name)]
        kinds = [kind for kind in wanted if workload.takes(kind)]
        if self.contestants:
            return [kind for kind in kinds if kind.name in self.contestants]
        if scale.name != "quick":
            return kinds
        light = [kind for kind in kinds if not kind.heavy]
        return [kind for kind in light if kind.prominent or workload.quick_for_all]

    def modules(self, scale: Scale) -> list[str]:
        """What processes need: those who take part in them, and the drivers, which are the
        floors'."""
        found: dict[str, None] = {}
        for store in self.stores:
            workloads = [WORKLOADS[name] for name in self.workloads if WORKLOADS[name].processes]
            kinds = [kind for work in workloads for kind in self.kinds(work, store, scale)]
            kinds += [kind for kind in contestants(store) if kind.kind != "peer"]
            found |= dict.fromkeys(module for kind in kinds for module in kind.modules)
        return list(found)


def run(
    selection: Selection,
    scale: Scale,
    say: Callable[[str], Any] = str,
    into: Results | None = None,
    keep: Callable[[Results], Any] = id,
) -> Results:
    """Measure what was selected. What a run before it has found is kept, but for the stores that
    are measured again. `keep` is called after each store."""
    results = into or Results(scale.name, _now(), machine.describe(), _versions())
    preload(selection.modules(scale))
    for store in selection.stores:
        began, started, load = time.monotonic(), _now(), os.getloadavg()[0]
        try:
            with SITES[store]() as place:
                rows = list(_on_store(place, selection, scale, say))
        except Exception as trouble:
            say(f"{store}: {reason(trouble)}")
            results.put(store, f"could not be started: {reason(trouble)}", [], None)
        else:
            part = Part(started, time.monotonic() - began, load)
            results.put(store, place.engine, rows, part)
        keep(results)
    return results


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _on_store(
    place: Place, selection: Selection, scale: Scale, say: Callable[[str], Any]
) -> Iterator[Row]:
    for name in selection.workloads:
        workload = WORKLOADS[name]
        if entrants := selection.entrants(workload, place, scale):
            began = time.monotonic()
            yield from workload.run(entrants, scale)
            say(f"{place.store:12}{name:22}{time.monotonic() - began:6.1f} s")


def _versions() -> dict[str, str]:
    found = {}
    for kind in contestants():
        found[kind.package] = _version(kind)
    found.pop("", None)
    return dict(sorted(found.items()))


def _version(kind: type[Contestant]) -> str:
    try:
        return version(kind.package) if kind.package else ""
    except PackageNotFoundError:
        return "not installed"
