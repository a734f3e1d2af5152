"""`python -m tests.frozen`: measures every call on every store, and prints the table."""

from __future__ import annotations

import argparse

from tests.frozen.measure import FACES, Measured, measure
from tests.frozen.sites import SITES

Results = dict[tuple[str, str], dict[str, Measured]]


def main() -> None:
    """Measure, and print as each store is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=[*SITES], help=f"of {', '.join(SITES)}")
    parser.add_argument("--request-timeout", type=float, default=5.0)
    parser.add_argument("--faces", nargs="*", default=[*FACES])
    given = parser.parse_args()
    results: Results = {}
    for store in given.stores:
        for face in given.faces:
            with SITES[store]() as site:
                measured = measure(site, face, given.request_timeout)
            results[store, face] = {one.call: one for one in measured}
            for one in measured:
                print(
                    f"{store:11} {face:6} {one.call:18} {one.seconds:6.2f} s"
                    f"  promised {one.promised:g} s, {one.outcome}",
                    flush=True,
                )
    print(table(results, given.stores, given.faces))


def table(results: Results, stores: list[str], faces: list[str]) -> str:
    """Returns the longest time of each call, as Markdown."""
    calls = {name: one.promised for row in results.values() for name, one in row.items()}
    lines = [f"| call | promised | {' | '.join(stores)} |", "|---|---" + "|---" * len(stores) + "|"]
    for call, promised in calls.items():
        cells = []
        for store in stores:
            found = [results[store, face].get(call) for face in faces]
            cells.append(" / ".join("-" if one is None else f"{one.seconds:.2f}" for one in found))
        lines.append(f"| `{call}` | {promised:g} s | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
