"""Ours beside theirs, as a ratio in which more is better for us."""

from __future__ import annotations

from benchmarks.harness import Column, Row
from benchmarks.run import Results
from benchmarks.workloads import WORKLOADS


def ours(results: Results, workload: str, store: str) -> Row | None:
    """Our row in the table of a workload."""
    for row in results.table(workload, store):
        if row.kind == "ours" and row.figures:
            return row
    return None


def advantage(results: Results, theirs: Row) -> float | None:
    """How many times as good as theirs our first figure is."""
    mine = ours(results, theirs.workload, theirs.store)
    column = WORKLOADS[theirs.workload].columns[0]
    return None if mine is None else ratio(mine, theirs, column)


def ratio(mine: Row, theirs: Row, column: Column) -> float | None:
    """The same for any column."""
    mine_value, their_value = mine.value(column), theirs.value(column)
    if not mine_value or not their_value:
        return None
    return mine_value / their_value if column.better == "more" else their_value / mine_value


def least(
    results: Results, workload: str, store: str, column: Column | None = None
) -> tuple[float, str] | None:
    """Our advantage over the best of the peers, and who that is; by the first figure, or by
    another column's."""
    mine = ours(results, workload, store)
    column = column or WORKLOADS[workload].columns[0]
    found = [
        (edge, row.contestant)
        for row in results.table(workload, store)
        if mine is not None
        and row.kind == "peer"
        and not row.contestant.startswith("holdfast")  # with other options
        and (edge := ratio(mine, row, column)) is not None
    ]
    return min(found, default=None)
