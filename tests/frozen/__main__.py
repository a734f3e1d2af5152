"""`python -m tests.frozen`: measures every call on every store, and prints the table.

All stores and both faces at once: the programs mostly wait. Only their ends are measured one after
the other, because Python's own end needs a processor. With --write the table goes into
docs/time.md; do that on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.frozen.measure import FACES, PYTHONS_CPU, PYTHONS_END, Measured, Program
from tests.frozen.sites import SITES, Site

PAGE = Path(__file__).parents[2] / "docs" / "time.md"
BEGIN, END = "<!-- python -m tests.frozen --write: begin -->", "<!-- end -->"
NAMES = {
    "redis": "Redis", "postgresql": "PostgreSQL", "mariadb": "MariaDB", "dynamodb": "DynamoDB",
    "azure": "Azure", "s3": "S3", "sqlite": "SQLite",
}  # fmt: skip
# How the page calls the calls, and how late each may be.
CALLS = {
    "Ctrl-C": ("Ctrl-C", 0.5),
    "cancel": ("`task.cancel()`", 0.5),
    "asyncio.timeout(1)": ("`asyncio.timeout(1)`", 0.5),
    "lease.check()": ("`lease.check()`", 0.0),
    "try_acquire": ("`try_acquire`", 0.5),
    "timeout=0": ("`acquire(timeout=0)`", 0.5),
    "timeout=1": ("`acquire(timeout=1)`", 0.5),
    "show": ("`show`", 0.5),
    "holders": ("`holders`", 0.5),
    "release": ("`release`", 0.5),
    "end of with": ("end of a `with` block", 0.5),
    "close": ("`close()`", 0.0),
    "exit": ("end of the program, with a lease", 0.0),
    PYTHONS_END: ("Python's own part of it", 0.0),
    PYTHONS_CPU: ("processor time of that part", 0.0),
    "idle exit": ("end of the program, with a client that holds nothing", 0.0),
}
NOT_OURS = (PYTHONS_END, PYTHONS_CPU)
Results = dict[tuple[str, str], dict[str, Measured]]


@dataclass
class Run:
    """One store with its programs: one of each face that makes calls, and one that does not."""

    store: str
    site: Site
    programs: dict[str, Program] = field(default_factory=dict)
    idle: dict[str, Program] = field(default_factory=dict)


def main() -> int:
    """Measure, print, and write; fails if something was late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=[*SITES], help=f"of {', '.join(SITES)}")
    parser.add_argument("--request-timeout", type=float, default=5.0)
    parser.add_argument("--write", action="store_true", help="write the table into docs/time.md")
    given = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    results = measured(given.stores, given.request_timeout)
    words = about(given.request_timeout, load)
    text = f"{words}\n\n{table(results, given.stores)}"
    print(text, f"\n{time.monotonic() - began:.0f} s", sep="\n")
    if given.write:
        PAGE.write_text(within(PAGE.read_text(), text))
    late = list(too_late(results))
    print(*late, sep="\n", file=sys.stderr)
    return 1 if late else 0


def measured(stores: Iterable[str], request_timeout: float) -> Results:
    """Start everything, freeze all stores, and have all programs make their calls."""
    results: Results = {}
    with ExitStack() as stack, ThreadPoolExecutor(4 * len(SITES)) as pool:

        def started(store: str) -> Run:
            run = Run(store, stack.enter_context(SITES[store]()))
            for face in FACES:
                for work, programs in (("calls", run.programs), ("idle", run.idle)):
                    program = Program(run.site[0], face, request_timeout, work)
                    programs[face] = stack.enter_context(program)
            return run

        with ThreadPoolExecutor(os.cpu_count()) as few:  # what starts needs a processor
            runs = list(few.map(started, stores))
        _say("All programs are ready.")
        for run in runs:
            run.site[1]()
            stack.callback(run.site[2])
        made = {
            (run.store, face): pool.submit(program.calls)
            for run in runs
            for face, program in run.programs.items()
        }
        for place, rows in made.items():
            results[place] = {row.call: row for row in rows.result()}
        _say("All calls are measured.")
        for run in runs:
            for face in FACES:
                results[run.store, face] |= {row.call: row for row in run.programs[face].end()}
                run.idle[face].calls()
                results[run.store, face]["idle exit"] = run.idle[face].end()[0]
    return results


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def about(request_timeout: float, load: float) -> str:
    """What was measured, when, and how busy the machine was."""
    return (
        f"Blocking / asyncio, in seconds, with a `request_timeout` of {request_timeout:g} s; on "
        f"{os.cpu_count()} cores with a load of {load:.1f} before, "
        f"{datetime.now(UTC):%Y-%m-%d}."
    )


def table(results: Results, stores: list[str]) -> str:
    """Returns how long each call took, as Markdown."""
    promised = {name: one.promised for row in results.values() for name, one in row.items()}
    heads = ["call", "promised", *(NAMES.get(store, store) for store in stores)]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    for call, (label, later) in CALLS.items():
        cells = [
            " / ".join(_seconds(results[store, face].get(call)) for face in FACES)
            for store in stores
        ]
        limit = "-" if call in NOT_OURS else f"{promised[call] + later:g} s"
        lines.append(_line([label, limit, *cells]))
    return "\n".join(lines)


def too_late(results: Results) -> Iterable[str]:
    """In words, what took longer than promised."""
    for (store, face), rows in results.items():
        for call, (label, later) in CALLS.items():
            one = rows.get(call)
            # A call that asks nobody takes no time that could be seen.
            if one is not None and one.late_s > (later or 0.01) and call not in NOT_OURS:
                yield f"{store}, {face}: {label} took {one.seconds:.2f} s"


def within(page: str, text: str) -> str:
    """Returns the page with the text between the two marks."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found, f"{BEGIN} is to be in the page"
    assert ended, f"{END} is to be in the page"
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _seconds(one: Measured | None) -> str:
    return "-" if one is None else f"{one.seconds:.2f}"


if __name__ == "__main__":
    sys.exit(main())
