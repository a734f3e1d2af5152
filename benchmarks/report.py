"""The page, the tables and the stored figures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import history, picture, plots
from benchmarks.compare import advantage, least, ours
from benchmarks.harness import QUICK, Column, Row, Workload
from benchmarks.peers import Contestant, contestants
from benchmarks.run import Results
from benchmarks.sites import EMULATED
from benchmarks.targets import BY_HAND, CONTENTION, Verdict, verdicts
from benchmarks.workloads import WORKLOADS

NOTES = Path(__file__).parent.parent / "docs" / "adr"

HEAD = """\
---
hide:
  - toc
---

# Benchmarks

Holdfast beside other lock libraries for Python, on one machine, over loopback. Where another
library is faster, the figures say so.

- **A pair** is one acquire and one release of a lock.
- **"2×"** says that Holdfast is twice as good as the other library: it takes half the time, or gets
  twice as many locks a second. Below 1× the other library is better: at "0.5×" it is twice as good.
- **Stores** have the names that are in their URLs: `az` is Azure Blob Storage, `file` a directory,
  and `mysql` here a MariaDB. `dynamodb` and `az` are **emulators on the same machine**: their
  figures compare libraries, and say little about the services.
- **Speed is not all**: file locks and server-side locks end with their process or session, and have
  no ttl, no fence and no record of who holds them and who waits. The [comparison](comparison.md)
  says what each library has.
"""

HOW = """\
## How it was measured

The libraries take turns, round by round, so that a noisy machine slows all of them alike. A figure
is the median of the rounds, and ± is half the distance between the quartiles, as a part of the
median. The longest waits are those of all rounds. The last column of a table compares the first
figure of the line with Holdfast's: 2× means that Holdfast is twice as good as the library in that
line, and below 1× the library is better.

`make bench` wrote this page; run it on your machine. `python -m benchmarks --quick` is a rough look
within a minute. `python -m benchmarks redis pair` runs a part, and `--list` names the parts.
`--resume` goes on with a run that was interrupted. `benchmarks/peers/` shows how to add a library
in a dozen lines. [Another page](benchmarks-targets.md) has our targets, and what has become worse
since the last release.
"""

TARGETS_HEAD = """\
# Targets of the benchmarks

This page is for those who work on Holdfast: what we want of the [benchmarks](benchmarks.md), and
what has become worse. Nothing here is a test: a run only says which targets hold. `make bench`
wrote it.

A *peer* is another library, or another way to use this one. A *pair* is an acquire and a release.
"N×" against a peer means that Holdfast is N times as good; elsewhere it is a multiple of what is
named. Names of stores and rows are explained on [the page for users](benchmarks.md).
"""

LEFT_OUT = (
    f"a quick run is rough: {QUICK.rounds} rounds of short turns, one of those with processes or "
    f"many threads, {QUICK.hand_overs} hand-overs, {QUICK.starts} new interpreters; no growth over "
    f"sizes, no pictures. Not in it unless they are named: the stores on emulators "
    f"({', '.join(sorted(EMULATED))}); "
    f"{', '.join(name for name, work in WORKLOADS.items() if not work.quick)}. Only the "
    "uncontended pair has nearly all peers: elsewhere it is us and the peers that the pictures of "
    "a full run show."
)


def write(results: Results, folder: Path, before: Results, pictures: bool = False) -> None:
    """Both pages, `benchmarks.json`, and the plots (they take a while) in a folder beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    history.store(results, folder)
    drawn = plots.draw(results, folder) if pictures else []
    (folder / "benchmarks.md").write_text(page(results, drawn, picture.draw(results, folder)))
    (folder / "benchmarks-targets.md").write_text(targets_page(results, before))


def rewrite(folder: Path, before: Results) -> None:
    """Both pages, from the figures and with the plots that are in the folder."""
    results = history.load(folder)
    if results is None:
        raise SystemExit(f"There is no {history.FILE} in {folder}")
    drawn = plots.drawn(results, folder)
    (folder / "benchmarks.md").write_text(page(results, drawn, picture.draw(results, folder)))
    (folder / "benchmarks-targets.md").write_text(targets_page(results, before))


def page(results: Results, pictures: list[str], first: Sequence[str] = ()) -> str:
    """The page for users: one picture and a summary, then all tables."""
    shown = "\n".join(f"![Holdfast beside the best other library]({path})" for path in first)
    parts = [HEAD, shown, in_words(results), summary(results), HOW]
    parts += [_about(results), tables(results)]
    if pictures:
        parts += ["## In pictures\n\n" + "\n\n".join(f"![]({picture})" for picture in pictures)]
    return _joined(parts)


def targets_page(results: Results, before: Results) -> str:
    """The page for those who work on Holdfast."""
    run = f"Run of {results.started}, {results.scale}."
    targets = _targets(verdicts(results, before))
    return _joined([TARGETS_HEAD, run, targets, _worse(results, before), _by_hand()])


def _joined(parts: list[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


PER_S = Column("per_s", "", "more", digits=0)
WORST_WAIT = Column("longest_ms", "", stat="worst", digits=0)

PAIR, PROCESSES = "acquire and release", "8 processes on one key"
THREADS, TASKS = "64 threads of one process", "200 tasks of one process"
OF_50 = "that hold one key for 20 ms, locks a second (at most 50)"

# What a user feels of each store: the title, the workload, and the column of it.
FELT = (
    (f"{PAIR}, µs", "pair", Column("wall_us", "", digits=0)),
    (f"{PAIR}: CPU, µs", "pair", Column("cpu_us", "", digits=0)),
    (f"{PAIR}: requests", "requests", Column("pair", "", digits=0)),
    (f"{PAIR}, 0.5 ms away, µs", "near", Column("wall_us", "", digits=0)),
    (f"{PAIR}, 5 ms away, µs", "far", Column("wall_us", "", digits=0)),
    (f"{THREADS} on 8 keys, locks a second", "threads-together", PER_S),
    (f"{THREADS}, 0.5 ms away, locks a second", "near-threads-together", PER_S),
    (
        f"{THREADS}, 0.5 ms away: requests a lock", "near-threads-together",
        Column("requests", "", digits=2),
    ),
    (f"{THREADS}, 5 ms away, locks a second", "far-threads-together", PER_S),
    (f"{TASKS} on 20 keys, locks a second", "tasks-together", PER_S),
    (f"{TASKS}, 0.5 ms away, locks a second", "near-tasks-together", PER_S),
    (f"{TASKS}, 5 ms away, locks a second", "far-tasks-together", PER_S),
    (f"{PROCESSES}, locks a second", "contended", PER_S),
    (f"{PROCESSES}: CPU a lock, µs", "contended", Column("cpu_us", "", digits=0)),
    (f"{PROCESSES}: requests a lock", "crowd", Column("requests", "")),
    (f"{PROCESSES}: longest wait, ms", "contended", WORST_WAIT),
    (f"{PROCESSES}, 0.5 ms away, locks a second", "near-contended", PER_S),
    (f"{PROCESSES}, 5 ms away, locks a second", "far-contended", PER_S),
    (f"{PROCESSES}, each on a machine of its own, locks a second", "apart", PER_S),
    ("hand-over to a waiting process, ms", "handover", Column("latency_ms", "", digits=1)),
    (f"100 processes {OF_50}", "waiting", PER_S),
    (f"100 processes, each on a machine of its own, {OF_50}", "waiting-apart", PER_S),
    (f"300 threads of one process {OF_50}", "waiting-threads", PER_S),
)  # fmt: skip

# The situations of a user, in words: what it is, the workload, and what to know of it.
SITUATIONS = (
    (
        "One caller, and nobody else wants the lock", "pair",
        "A lock costs two requests, each of which writes a record. A file lock (tooz, portalocker) "
        "and a server-side lock (sqlalchemy-dlock) write none. With a server far away, all "
        "libraries that send two requests take about the same time.",
    ),
    (
        "Many threads of one process", "threads-together",
        "They pass the lock on inside the process, and send nearly no requests as long as no other "
        "process wants it.",
    ),
    ("Many tasks of one asyncio process", "tasks-together", "The same holds for tasks."),
    (
        "Several processes on one lock", "contended",
        "Holdfast writes each grant to the store. It serves the processes in the order in which "
        "they came, but not on DynamoDB and in object stores. sqlalchemy-dlock lets the database "
        "server keep the lock (`GET_LOCK`, `pg_advisory_lock`), which needs fewer requests. "
        "Holdfast often takes more processor time than the others: see the table. All processes "
        "are on one machine here; where they are not, they cannot wake each other on MySQL, and "
        "look for their turn ([figures](adr/0030-polling-in-a-queue.md)).",
    ),
    (
        "The same, with a server 5 ms away", "far-contended",
        "Between two holds Holdfast needs one round trip on Redis, and two on PostgreSQL and "
        "MySQL.",
    ),
    (
        "How soon a waiting process gets a lock that is freed", "handover",
        "Where the store allows it, Holdfast wakes the next one. Libraries that only look again "
        "from time to time take longer.",
    ),
    (
        "Processes that read and sometimes write", "readers",
        "A shared lock is a write to the record of its key, like any other, so readers hold each "
        "other up. sqlalchemy-dlock and filelock share a lock without a write.",
    ),
)  # fmt: skip
ALIKE = 1.1  # a smaller advantage than this, either way, is about the same


def in_words(results: Results) -> str:
    """When it is fast, and when it is not: each situation with the stores, best first."""
    lines = []
    for title, name, about in SITUATIONS:
        found = [(edge[0], s) for s in results.engines if (edge := least(results, name, s))]
        if found:
            lines.append(f"- **{title}**: {_ranked(sorted(found, reverse=True))}. {about}".strip())
    if not lines:
        return ""
    about = (
        "Beside the best other library on the same store. A store is left out where no other "
        "library was measured."
    )
    return "\n".join(["## When it is fast, and when not", "", about, "", *lines])


def _ranked(found: list[tuple[float, str]]) -> str:
    """The stores, best first, in three groups."""
    groups = {
        "faster on": [one for one in found if one[0] >= ALIKE],
        "about the same on": [one for one in found if 1 / ALIKE < one[0] < ALIKE],
        "slower on": [one for one in found if one[0] <= 1 / ALIKE],
    }
    return "; ".join(
        f"{words} {', '.join(f'{store} ({_times(edge)})' for edge, store in group)}"
        for words, group in groups.items()
        if group
    )


def summary(results: Results) -> str:
    """What users feel, store by store, and how the best peer does in brackets."""
    shown = [felt for felt in FELT if any(ours(results, felt[1], s) for s in results.engines)]
    if not shown:
        return ""
    titles = ["", *results.engines]
    lines = [
        _cells([title, *(_felt(results, name, store, column) for store in results.engines)])
        for title, name, column in shown
    ]
    about = (
        "Each figure is Holdfast's. The factor in brackets says how many times as good it is as "
        "that of the other library that is best in this row, on the same store; below 1× the other "
        "library is better. Without brackets no other library was measured. With a server "
        '"0.5 ms away" a proxy adds that much to each round trip. CPU is the processor time of the '
        "clients, without the server's."
    )
    head = [_cells(titles), "|" + "---|" * len(titles)]
    return "\n".join(["## In short", "", about, "", *head, *lines])


def _felt(results: Results, name: str, store: str, column: Column) -> str:
    row = ours(results, name, store)
    value = None if row is None else row.value(column)
    if row is None or value is None:
        return ""
    text = f"{value:,.{column.digits}f}"
    best = least(results, name, store, column)
    return text if best is None else f"{text} ({_times(best[0])})"


def _times(edge: float) -> str:
    return f"{edge:.2f}×" if edge < 100 else f"{edge:,.0f}×"


def _about(results: Results) -> str:
    lines = [f"- **{name}**: {text}" for name, text in results.machine.items()]
    lines += [f"- **Engines**: {', '.join(dict.fromkeys(results.engines.values()))}"]
    versions = [f"{name} {number}" for name, number in results.versions.items()]
    lines += [f"- **Libraries**: {', '.join(versions)}"]
    lines += [f"- **Run**: {results.started}, {results.scale}, {results.took_s / 60:.1f} minutes"]
    parts = [
        f"{store} at {part.started.split()[1]}, {part.took_s:.0f} s, load {part.load:.1f} before"
        for store, part in results.parts.items()
    ]
    lines += [f"- **Stores**: {'; '.join(parts)}"] if parts else []
    if again := _measured_again(results):
        lines += [f"- **Measured again after the run**: {', '.join(again)}"]
    if results.scale == QUICK.name:
        lines += [f"- **Left out**: {LEFT_OUT}"]
    return "\n".join(lines)


def _measured_again(results: Results) -> list[str]:
    """The stores that began when the whole run would have been over."""
    if not results.parts:
        return []
    began = min(_time(part.started) for part in results.parts.values())
    over = began + timedelta(seconds=results.took_s + 60)  # times are in whole minutes
    return [store for store, part in results.parts.items() if _time(part.started) > over]


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M %Z").replace(tzinfo=UTC)


def tables(results: Results) -> str:
    """All tables."""
    parts = [_workload(results, workload) for workload in WORKLOADS.values()]
    parts += [_absent(results), _who(results)]
    return "\n\n".join(part for part in parts if part)


def _worse(results: Results, before: Results) -> str:
    found = history.worse(results, before)
    if not found:
        return ""
    lines = "\n".join(f"- {line}" for line in found)
    about = (
        "In these rows Holdfast's advantage over a peer, or over the bare engine, fell by a factor "
        f"of more than {history.WORSE_BY:g} since the run of the release, on {before.started}. The "
        "factors of two runs on one machine differ by up to 30 % without any change "
        f"({_note(CONTENTION)}):"
    )
    return f"## Worse than at the last release\n\n{about}\n\n{lines}"


def _targets(found: list[Verdict]) -> str:
    lines = [_cells([one.text, one.goal, one.found, _holds(one)]) for one in found]
    if not lines:
        return ""
    missed = sum(not one.holds for one in found)
    about = f"{len(lines) - missed} of {len(lines)} hold. If one does not, a design note says more."
    head = ["## Targets", "", about, "", "| | goal | found | holds |", "|---|---|---|---|"]
    return "\n".join([*head, *lines])


def _holds(verdict: Verdict) -> str:
    if verdict.holds:
        return "yes"
    return f"**no**: {_note(verdict.note)}" if verdict.note else "**no**: without a note yet"


def _note(number: int) -> str:
    [path] = NOTES.glob(f"{number:04}-*.md")
    return f"[note {number}](adr/{path.name})"


def _by_hand() -> str:
    lines = [_cells([text, goal, f"`{command}`"]) for text, goal, command in BY_HAND]
    head = ["## Measured by other commands", "", "| | goal | command |", "|---|---|---|"]
    return "\n".join([*head, *lines])


def _workload(results: Results, workload: Workload) -> str:
    found = [
        row
        for store in results.engines
        for row in results.table(workload.name, store)
        if row.figures
    ]
    if not found:
        return ""
    compared = any(row.kind != "ours" for row in found)
    rows = [_line(results, row, workload, compared) for row in found]
    titles = ["store", "", *(column.title for column in workload.columns)]
    if workload.size_name:
        titles.insert(2, workload.size_name)
    if compared:
        titles.append("Holdfast's advantage")
    head = [_cells(titles), "|" + "---|" * len(titles)]
    return "\n".join([f"## {workload.title}", "", workload.about, "", *head, *rows])


def _line(results: Results, row: Row, workload: Workload, compared: bool) -> str:
    name = f"**{row.contestant}**" if row.kind == "ours" else row.contestant
    cells = [row.store, name if row.kind != "floor" else f"*{name}*"]
    if workload.size_name:
        cells.append(f"{row.size:,}")
    cells += [_cell(results, row, column) for column in workload.columns]
    if compared:
        edge = None if row.kind == "ours" else advantage(results, row)
        cells.append("" if edge is None else _times(edge))
    return _cells(cells)


def _cell(results: Results, row: Row, column: Column) -> str:
    if column.of:
        other = results.row(column.of, row.store, row.contestant)
        return "" if other is None else _cell(results, other, replace(column, of=""))
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
