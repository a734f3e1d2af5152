"""The page, the tables and the stored figures of a run."""

from __future__ import annotations

from pathlib import Path

from benchmarks import history, plots
from benchmarks.compare import advantage
from benchmarks.harness import QUICK, Column, Row, Workload
from benchmarks.peers import Contestant, contestants
from benchmarks.run import Results
from benchmarks.sites import EMULATED
from benchmarks.targets import verdicts
from benchmarks.workloads import WORKLOADS

HEAD = """\
# Benchmarks

Holdfast beside the other lock libraries for Python, in one run on one machine, over loopback.
This page was written by `make bench`; run it on your machine. (`python -m benchmarks --quick`
takes less than a minute on a quiet machine, `python -m benchmarks redis pair` is a part, `--list`
names the parts, and `benchmarks/peers/` shows how to add a library in a dozen lines.)

Contestants take turns, round by round, so that a noisy machine hits all alike; a figure is the
median of the rounds, with half the distance between the quartiles as its spread. The last column
says how many times better than that library Holdfast is, by the first figure; below 1× the library
is better.
"""

LEFT_OUT = (
    f"a quick run is rough: {QUICK.rounds} rounds of short turns, one of those with processes, "
    f"{QUICK.hand_overs} hand-overs; {QUICK.leases[-1]} leases, kept with a ttl of "
    f"{QUICK.ttl_s:g} s; {QUICK.listed[-1]:,} listed locks; no growth over sizes. The stores on "
    f"emulators ({', '.join(sorted(EMULATED))}) and the requests of contenders are not in it "
    "unless they are named, and only the uncontended pair has all peers: elsewhere it is us and "
    "the peers that the pictures of a full run show."
)


def write(results: Results, folder: Path, worse: list[str]) -> None:
    """`benchmarks.md`, `benchmarks.json`, and the plots in a folder beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = plots.draw(results, folder)
    (folder / "benchmarks.md").write_text(page(results, pictures, worse))
    history.store(results, folder)


def page(results: Results, pictures: list[str], worse: list[str]) -> str:
    """The whole page."""
    parts = [HEAD, _about(results), tables(results, worse)]
    if pictures:
        parts += ["## In pictures\n\n" + "\n\n".join(f"![]({picture})" for picture in pictures)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _about(results: Results) -> str:
    lines = [f"- **{name}**: {text}" for name, text in results.machine.items()]
    lines += [f"- **Engines**: {', '.join(dict.fromkeys(results.engines.values()))}"]
    versions = [f"{name} {number}" for name, number in results.versions.items()]
    lines += [f"- **Libraries**: {', '.join(versions)}"]
    lines += [f"- **Run**: {results.started}, {results.scale}, {results.took_s / 60:.1f} minutes"]
    if results.scale == QUICK.name:
        lines += [f"- **Left out**: {LEFT_OUT}"]
    return "\n".join(lines)


def tables(results: Results, worse: list[str]) -> str:
    """All tables."""
    parts = [_worse(worse), _targets(results)]
    parts += [_workload(results, workload) for workload in WORKLOADS.values()]
    parts += [_absent(results), _who(results)]
    return "\n\n".join(part for part in parts if part)


def _worse(worse: list[str]) -> str:
    if not worse:
        return ""
    lines = "\n".join(f"- {line}" for line in worse)
    return f"## Worse than last time\n\nBy a ratio of more than {history.WORSE_BY:g}:\n\n{lines}"


def _targets(results: Results) -> str:
    lines = [
        _cells([verdict.text, verdict.goal, verdict.found, "yes" if verdict.holds else "**no**"])
        for verdict in verdicts(results)
    ]
    if not lines:
        return ""
    return "\n".join(["## Targets", "", "| | goal | found | holds |", "|---|---|---|---|", *lines])


def _workload(results: Results, workload: Workload) -> str:
    rows = [
        _line(results, row, workload)
        for store in results.engines
        for row in results.table(workload.name, store)
        if row.figures
    ]
    if not rows:
        return ""
    titles = ["store", "", *(column.title for column in workload.columns)]
    if workload.size_name:
        titles.insert(2, workload.size_name)
    titles.append("we are")
    head = [_cells(titles), "|" + "---|" * len(titles)]
    return "\n".join([f"## {workload.title}", "", workload.about, "", *head, *rows])


def _line(results: Results, row: Row, workload: Workload) -> str:
    name = f"**{row.contestant}**" if row.kind == "ours" else row.contestant
    cells = [row.store, name if row.kind != "floor" else f"*{name}*"]
    if workload.size_name:
        cells.append(f"{row.size:,}")
    cells += [_cell(row, column) for column in workload.columns]
    edge = None if row.kind == "ours" else advantage(results, row)
    return _cells([*cells, "" if edge is None else f"{edge:.2f}×"])


def _cell(row: Row, column: Column) -> str:
    value = row.value(column)
    if value is None:
        return ""
    text = f"{value:,.{column.digits}f}"
    spread = row.figures[column.figure].spread
    return f"{text} ±{spread:.0%}" if column.stat == "median" and spread >= 0.005 else text


def _cells(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _who(results: Results) -> str:
    """What each contestant is, in the words of its class."""
    seen = {(row.store, row.contestant) for row in results.rows}
    lines = []
    for kind in contestants():
        stores = [store for store in kind.stores if (store, kind.name) in seen]
        if stores:
            lines.append(f"- **{kind.name}** ({', '.join(stores)}): {_words(kind)}")
    return "\n".join(["## Who is who", "", *lines])


def _words(kind: type[Contestant]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _absent(results: Results) -> str:
    """Who could not take part, and why: once per reason, not per workload."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        if row.error:
            reasons.setdefault((row.store, row.error), []).append(row.workload)
    if not reasons:
        return ""
    lines = [
        f"- {store}, {', '.join(dict.fromkeys(workloads))}: {error}"
        for (store, error), workloads in reasons.items()
    ]
    return "\n".join(["## Not measured", "", *lines])
