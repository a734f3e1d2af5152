"""Run the benchmarks, or those that are named.

What a store has shown is written when the store is done. A run of everything that was interrupted
goes on with --resume, which measures the stores that are missing; with --resume STORE that store is
measured again. When all of them are there, the pages in docs/ are written. After a change of their
words, --pages writes them again from the figures that are stored.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import history, report
from benchmarks.crew import quiet
from benchmarks.harness import SCALES, Scale
from benchmarks.peers import contestants
from benchmarks.run import Results, Selection, run
from benchmarks.sites import SITES
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "benchmarks"


def main(arguments: list[str]) -> int:
    """Measure, print, write the page; say what has become worse."""
    options = _parser().parse_args(arguments)
    if options.list:
        print(_everything())
        return 0
    if options.pages:
        report.rewrite(options.out or DOCS, history.released())
        return 0
    scale = SCALES["quick" if options.quick else options.scale]
    selection = Selection.of(options.names, scale)
    whole = options.resume or (selection.everything and scale.name == "full")
    folder = options.out or BUILD / ("full" if whole else "part")
    stored = history.load(folder) if options.resume else None
    if options.resume:
        selection = _rest(selection, options.names, stored, scale)
    released = history.released()
    with quiet():
        results = run(
            selection, scale, say=_say, into=stored,
            keep=lambda found: report.write(found, folder, released),
        )  # fmt: skip
    if whole and results.complete and not options.out:
        folder = DOCS
    report.write(results, folder, released, pictures=scale.name != "quick")
    print(report.summary(results), report.tables(results), sep="\n\n")
    print(report.targets_page(results, released))
    _say(f"\n{results.took_s:.0f} s. Written to {folder}/benchmarks.md")
    return 0


def _rest(
    selection: Selection, names: list[str], stored: Results | None, scale: Scale
) -> Selection:
    """The stores that are named, or those that are missing in a run that was interrupted."""
    if not set(names) <= set(SITES):
        raise SystemExit("--resume takes the names of stores: the rest of a run is all of it")
    if stored is None or names:
        return selection
    if stored.scale != scale.name:
        raise SystemExit(f"The stored run is a {stored.scale} one")
    return replace(selection, stores=tuple(name for name in SITES if name not in stored.parts))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="stores, workloads or contestants (see --list)")
    parser.add_argument("--list", action="store_true", help="what there is to name")
    parser.add_argument(
        "--quick", action="store_true", help="within a minute, rough, without emulators"
    )
    parser.add_argument(
        "--resume", action="store_true", help="add the stores that an interrupted run lacks"
    )
    parser.add_argument(
        "--pages", action="store_true", help="measure nothing: write the pages from the stored run"
    )
    parser.add_argument("--scale", choices=SCALES, default="full", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="the folder to write to, instead of docs/")
    return parser


def _everything() -> str:
    lines = ["Stores:", *(f"  {name}" for name in SITES), "", "Workloads:"]
    lines += [f"  {name:23}{workload.title}" for name, workload in WORKLOADS.items()]
    lines += ["", "Contestants:"]
    lines += [f"  {kind.name:28}{', '.join(kind.stores)}" for kind in contestants()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
