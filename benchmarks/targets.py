"""What we want of the figures. Nothing here is a test: a run only says what holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.compare import advantage, least, ours
from benchmarks.harness import Column
from benchmarks.run import Results
from benchmarks.sites import SITES

KIB = 1024
MANY_LEASES = 10_000
SEVERAL_PAGES = 1000  # a listing of fewer locks says nothing about memory
CONSTANT_KIB = 1024  # how much more a listing of ten times as many locks may need


@dataclass(frozen=True)
class Verdict:
    """One target and how it went."""

    text: str
    goal: str
    found: str
    holds: bool


def verdicts(results: Results) -> list[Verdict]:
    """All targets whose figures are in the results."""
    return [
        *_against_peers(results),
        *_against_floors(results),
        *_against_one(results),
        *_figures(results),
        *_crowds(results),
        *(_at_full_size(results) if results.scale == "full" else ()),
    ]


def _at_full_size(results: Results) -> Iterator[Verdict]:
    """Where the target speaks of many leases or locks, more than a quick run has."""
    yield from _leases(results)
    yield from _listings(results)


# A server-side lock leaves no record: ADR 28.
CONTENDED = {"postgresql": 0.9, "mysql": 0.9}


def _against_peers(results: Results) -> Iterator[Verdict]:
    for workload, what in (("pair", "uncontended pair"), ("contended", "contended throughput")):
        for store in results.engines:
            if (best := least(results, workload, store)) is not None:
                edge, who = best
                text = f"{store}: {what} against the best peer ({who})"
                goal = CONTENDED.get(store, 1.0) if workload == "contended" else 1.0
                yield _at_least(text, edge, goal)


FLOORS = {"redis": 1.6, "sqlite": 2.0, "postgresql": 2.0}


def _against_floors(results: Results) -> Iterator[Verdict]:
    for store, most in FLOORS.items():
        for row in results.table("pair", store):
            if row.kind == "floor" and (edge := advantage(results, row)):
                text = f"{store}: uncontended pair, as a multiple of the bare engine's time"
                yield _at_most(text, 1 / edge, most, "×")


WITHOUT_LINES = "holdfast, pass_on=False"
ONE = (
    ("coroutines", "redis", "redis.asyncio Lock", 5.0),
    ("tasks-together", "redis", "redis.asyncio Lock", 20.0),
    ("handover", "redis", "redis-py Lock", 20.0),
    *(("threads-together", store, WITHOUT_LINES, 5.0) for store in SITES),
)


def _against_one(results: Results) -> Iterator[Verdict]:
    for workload, store, who, factor in ONE:
        row = results.row(workload, store, who)
        if row is not None and (edge := advantage(results, row)) is not None:
            yield _at_least(f"{store}: {workload} against {who}", edge, factor)


FIGURES = (
    ("handover", "redis", Column("latency_ms", ""), 2.0, "hand-over, median", " ms"),
    ("handover", "mysql", Column("latency_ms", ""), 5.0, "hand-over, median", " ms"),
    ("contended", "sqlite", Column("cpu_us", ""), 1000.0, "CPU of the clients a lock", " µs"),
    ("contended", "postgresql", Column("cpu_us", ""), 1600.0, "CPU of the clients a lock", " µs"),
    ("crowd", "postgresql", Column("requests", ""), 6.0, "requests a contended lock", ""),
    ("crowd", "mysql", Column("requests", ""), 6.0, "requests a contended lock", ""),
    ("contended", "dynamodb", Column("share", ""), 3.0, "largest share ÷ median", ""),
    ("contended", "az", Column("share", ""), 3.0, "largest share ÷ median", ""),
    ("import", "memory", Column("import_ms", ""), 60.0, "import holdfast", " ms"),
    ("start", "sqlite", Column("start_ms", ""), 120.0, "CPU of `holdfast run`", " ms"),
    ("start", "redis", Column("start_ms", ""), 250.0, "CPU of `holdfast run`", " ms"),
    ("start", "postgresql", Column("start_ms", ""), 350.0, "CPU of `holdfast run`", " ms"),
)


def _figures(results: Results) -> Iterator[Verdict]:
    for workload, store, column, most, text, unit in FIGURES:
        row = ours(results, workload, store)
        if row is not None and (value := row.value(column)) is not None:
            yield _at_most(f"{store}: {text}{_size(row.size)}", value, most, unit)


# What a run of the benchmarks does not measure: the target, the goal, and the command that does.
BY_HAND = (
    (
        "300 threads of one process, one key: SQLite, a directory, PostgreSQL, MySQL",
        "≥ 45 a second",
        "python -m tests.crowd --store sqlite --processes 1 --threads 300",
    ),
    (
        "100 processes on MySQL and in a directory (here fewer: MariaDB's connections), 40 s",
        "≥ 40 a second, nobody unserved, longest wait ≤ 3× the fair one",
        "python -m tests.crowd --store mysql --processes 100",
    ),
    (
        "A process that only waits: SQLite, a directory",
        "≤ 0.5 % of a core",
        "python -m tests.crowd --store sqlite --processes 20 --idle",
    ),
    (
        "300 waiting on Redis, a claim",
        "≤ 0.5 ms of the server",
        "python -m benchmarks.long_queue",
    ),
)

LOCKS_A_SECOND = 40.0  # of the 50 that holds of 20 ms allow
LONGEST_WAIT = 3.0  # as a multiple of the fair one


def _crowds(results: Results) -> Iterator[Verdict]:
    for store in results.engines:
        row = ours(results, "waiting", store)
        if row is None or results.scale != "full":
            continue
        who = f"{store}: {row.size} processes wait for one lock"
        per_s = row.figures["per_s"].median
        goal = f"≥ {LOCKS_A_SECOND:g} a second"
        yield Verdict(who, goal, f"{per_s:.1f}", per_s >= LOCKS_A_SECOND)
        unserved = row.figures["unserved"].worst
        yield Verdict(f"{who}: got none", "0", f"{unserved:.0f}", unserved == 0)
        longest = row.figures["longest"].worst
        yield _at_most(f"{who}: longest wait ÷ fair wait", longest, LONGEST_WAIT, "")


def _leases(results: Results) -> Iterator[Verdict]:
    for store in results.engines:
        row = ours(results, "kept", store)
        if row is None:
            continue
        kib = row.figures["lease_bytes"].median / KIB
        # In the memory store the records themselves are in the process; and what a client
        # needs for itself is not to be shared by a few leases only.
        if store != "memory" and row.size >= MANY_LEASES:
            yield _at_most(f"{store}: memory a lease{_size(row.size)}", kib, 2.0, " KiB")
        if store == "redis":
            core = row.figures["core"].median * 100
            yield _at_most(f"redis: of one core to keep them{_size(row.size)}", core, 5.0, " %")
        lost = row.figures["lost"].worst
        yield Verdict(f"{store}: leases lost{_size(row.size)}", "0", f"{lost:.0f}", lost == 0)


def _listings(results: Results) -> Iterator[Verdict]:
    column = Column("peak_kib", "")
    for store in results.engines:
        rows = sorted(results.of("listing", store), key=lambda row: row.size)
        values = [value for row in rows if (value := row.value(column)) is not None]
        if len(values) > 1 and rows[0].size >= SEVERAL_PAGES:
            text = f"{store}: listing {rows[-1].size:,} locks instead of {rows[0].size:,}"
            yield _at_most(f"{text}, more memory", values[-1] - values[0], CONSTANT_KIB, " KiB")


def _size(size: int) -> str:
    return f" ({size:,})" if size else ""


def _at_least(text: str, value: float, goal: float) -> Verdict:
    return Verdict(text, f"≥ {goal:g}×", f"{value:.2f}×", value >= goal)


def _at_most(text: str, value: float, goal: float, unit: str) -> Verdict:
    return Verdict(text, f"≤ {goal:g}{unit}", f"{value:.2f}{unit}", value <= goal)
