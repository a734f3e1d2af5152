"""The long run: many tries on each target, with a gate and without one."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.stale_writers.play import Outcome, Stage
from tests.stale_writers.targets import TARGETS

AT_ONCE = 5


def main() -> int:
    """Returns 1 if a stale write was made through a gate, or if none was made without."""
    parser = argparse.ArgumentParser(prog="python -m tests.stale_writers")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument(
        "--busy", action="store_true",
        help="stop a holder that writes all the time, at any instruction; with the gate only",
    )  # fmt: skip
    parser.add_argument("--tries", type=int, default=50, help="on each target")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended, too
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # losses are what this is about
    names = given.targets or list(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(names, Path(folder))
        outcomes: list[Outcome] = []
        left = given.tries
        while left > 0:
            tries = min(left, AT_ONCE)
            for guarded in (True,) if given.busy else (True, False):
                writes = stage.writes(tries, guarded=guarded)
                if given.busy:
                    writes = [write for write in writes if not write.inside]
                outcomes += stage.round(writes, busy=given.busy)
            left -= tries
    return report(names, outcomes, "anywhere" if given.busy else "before")


def report(names: list[str], outcomes: list[Outcome], usually: str) -> int:
    """Print a table. Returns the exit code."""
    lines = [f"{'target':22} {'stopped':8} {'gate':5} tries  stale writes  what was said"]
    failed = False
    groups = {(o.write.target, o.write.inside, o.write.guarded) for o in outcomes}
    for name, inside, guarded in sorted(groups, key=lambda g: (names.index(g[0]), g[1], not g[2])):
        group = [o for o in outcomes if o.write[1:] == (name, guarded, inside)]
        stale = sum(outcome.stale_write for outcome in group)
        said = dict(Counter(outcome.said.partition(":")[0] for outcome in group))
        failed = failed or (stale > 0 if guarded else stale == 0)
        where = "inside" if inside else usually
        gate = "yes" if guarded else "no"
        lines.append(f"{name:22} {where:8} {gate:5} {len(group):5}  {stale:12}  {said}")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
