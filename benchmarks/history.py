"""Stored runs, and what has become worse since the last release.

Only ratios are compared, ours against a peer's of the same run: another day's machine may be
slower for everybody.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.compare import advantage, ours
from benchmarks.harness import Row
from benchmarks.run import Results
from benchmarks.workloads import WORKLOADS

WORSE_BY = 1.3  # the stated ratio
FILE = "benchmarks.json"
# The full run of the last release: later runs are compared with it, and not with each other, so
# that a little each time does not go unseen.
RELEASED = Path(__file__).parent / "released.json"
UNCONTENDED = ("pair", "cold", "threads", "coroutines")


def load(folder: Path) -> Results | None:
    """What was stored, if anything was."""
    path = folder / FILE
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else None


def released() -> Results:
    """The run of the last release."""
    return msgspec.json.decode(RELEASED.read_bytes(), type=Results)


def store(results: Results, folder: Path) -> None:
    """For the next time."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    (folder / FILE).write_bytes(text + b"\n")


def worse(now: Results, before: Results, workloads: tuple[str, ...] = ()) -> list[str]:
    """What has lost more than the stated ratio against a peer, in words. Quick runs are too
    rough for that; and what varied from round to round must have lost by so much more."""
    if not now.scale == before.scale == "full":
        return []
    found = []
    for row in now.rows:
        if workloads and row.workload not in workloads:
            continue
        was, has = _advantage(before, row), _advantage(now, row)
        if was and has and has * WORSE_BY * (1 + _spread(now, row)) < was:
            found.append(
                f"{WORKLOADS[row.workload].title} on {row.store}: now {has:.2f}× against "
                f"{row.contestant}, before {was:.2f}×"
            )
    return list(dict.fromkeys(found))  # one line for all numbers of contenders


def _spread(results: Results, theirs: Row) -> float:
    figure = WORKLOADS[theirs.workload].columns[0].figure
    mine = ours(results, theirs.workload, theirs.store)
    return sum(row.figures[figure].spread for row in (mine, theirs) if row and row.figures)


def _advantage(results: Results, row: Row) -> float | None:
    if row.kind == "ours" or row.workload not in WORKLOADS:
        return None
    theirs = results.row(row.workload, row.store, row.contestant)
    return None if theirs is None else advantage(results, theirs)
