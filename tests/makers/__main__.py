"""`python -m tests.makers`: on every store, or on those that are named."""

from __future__ import annotations

import argparse
import sys

import holdfast
from tests.makers import SITES, play


def main() -> int:
    """Play on each store. Returns 1 if a run was not good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=[])
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--kills", type=int, default=6)
    options = parser.parse_args()
    bad = 0
    for store in options.stores or SITES:
        with SITES[store]() as place:
            with holdfast.connect(place.url) as locks:
                locks.setup()
            outcome = play(place.url, place.environment, options.processes, options.kills)
        sys.stdout.write(f"{store}: {outcome}{'' if outcome.good else '  NOT GOOD'}\n")
        sys.stdout.flush()
        bad += not outcome.good
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
