"""`python -m holdfast.testing.sim`: replay a history, or look for one that breaks a rule.

With `--seed`, one history is run and printed. Without, seeds are tried that nobody has seen,
for `--count` seeds, or until `--minutes` are over if that comes first; the first history that
breaks a rule is shrunk and printed, with the command that replays it. `--exhaustive` tries
every schedule of a small scope instead.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence

from holdfast.testing.sim.exhaustive import SCOPES, explore
from holdfast.testing.sim.jobs import search_in_jobs
from holdfast.testing.sim.kinds import KINDS
from holdfast.testing.sim.plan import DEFAULT_STEPS, FAULTS, Options
from holdfast.testing.sim.runs import simulate, unseen_seed
from holdfast.testing.sim.shrink import shrink

WITHOUT_END = 10**9


def say(text: str) -> None:
    """Print, as this is a program."""
    sys.stdout.write(text + "\n")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("holdfast.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this history and print it")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="effects before healing")
    parser.add_argument("--store", choices=list(KINDS), help="the kind of store")
    parser.add_argument("--clients", type=int, help="how many clients")
    parser.add_argument("--keys", type=int, help="how many keys")
    parser.add_argument("--without", type=_names, default=(), help=f"of {','.join(FAULTS)}")
    parser.add_argument("--skip", type=_names, default=(), help="operations to leave out")
    parser.add_argument("--first", type=int, help="the first seed; by default one by chance")
    parser.add_argument("--count", type=int, help="how many seeds to try (2000)")
    parser.add_argument("--minutes", type=float, help="for how long to try seeds at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes (0: one for each core)")
    parser.add_argument("--no-shrink", action="store_true", help="print it as it is")
    parser.add_argument("--exhaustive", action="store_true", help="every schedule of small scopes")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a rule was broken."""
    given = _parser().parse_args(arguments)
    if given.exhaustive:
        return _exhaust()
    options = Options(
        given.seed or 0, given.steps, given.store, given.clients, given.keys,
        given.without, given.skip,
    )  # fmt: skip
    if given.seed is not None:
        return _show(options)
    return _search(options, given)


def _show(options: Options) -> int:
    history = simulate(options, record=True)
    say(history.text)
    say(f"replay    {options.command()}")
    return 1 if history.violation else 0


def _search(options: Options, given: argparse.Namespace) -> int:
    first = unseen_seed() if given.first is None else given.first
    say(f"seeds from {first} on")
    started = time.monotonic()
    ends_at = started + given.minutes * 60 if given.minutes else math.inf
    count = given.count or (2000 if given.minutes is None else WITHOUT_END)
    jobs = given.jobs or os.cpu_count() or 1
    found = search_in_jobs(options, range(first, first + count), ends_at, jobs, say)
    took = time.monotonic() - started
    rate = f"{found.histories} histories, {found.effects} effects, {found.histories / took:.0f}/s"
    if found.failure is None:
        say(f"{rate}: no rule broken, seeds from {first} on")
        return 0
    broken = found.failure.options
    say(f"{rate}: seed {broken.seed} breaks a rule: {found.failure.violation}")
    return _show(broken if given.no_shrink else shrink(broken))


def _exhaust() -> int:
    for scope in SCOPES:
        found = explore(scope)
        say(f"{scope.name}: {found.schedules} schedules, {found.violation or 'no rule broken'}")
        if found.violation:
            say(found.text)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
