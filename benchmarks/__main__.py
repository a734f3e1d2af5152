"""Run the benchmarks, or those that are named."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import history, report
from benchmarks.crew import quiet
from benchmarks.harness import SCALES
from benchmarks.peers import contestants
from benchmarks.run import Selection, run
from benchmarks.sites import SITES
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent


def main(arguments: list[str]) -> int:
    """Measure, print, write the page; say what has become worse."""
    options = _parser().parse_args(arguments)
    if options.list:
        print(_everything())
        return 0
    scale = SCALES["quick" if options.quick else options.scale]
    selection = Selection.of(options.names, scale)
    with quiet():
        results = run(selection, scale, say=lambda text: print(text, file=sys.stderr, flush=True))
    complete = selection.everything and scale.name == "full"
    folder = options.out or (ROOT / "docs" if complete else ROOT / "build" / "benchmarks")
    before = history.load(ROOT / "docs")
    worse = history.worse(results, before) if before else []
    report.write(results, folder, worse)
    print(report.summary(results), report.tables(results), sep="\n\n")
    print(report.targets_page(results, worse))
    print(f"\n{results.took_s:.0f} s. Written to {folder}/benchmarks.md", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="stores, workloads or contestants (see --list)")
    parser.add_argument("--list", action="store_true", help="what there is to name")
    parser.add_argument(
        "--quick", action="store_true", help="about a minute, rough, without emulators"
    )
    parser.add_argument("--scale", choices=SCALES, default="full", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="the folder to write to, instead of docs/")
    return parser


def _everything() -> str:
    lines = ["Stores:", *(f"  {name}" for name in SITES), "", "Workloads:"]
    lines += [f"  {name:12}{workload.title}" for name, workload in WORKLOADS.items()]
    lines += ["", "Contestants:"]
    lines += [f"  {kind.name:28}{', '.join(kind.stores)}" for kind in contestants()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
