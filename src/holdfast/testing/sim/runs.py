"""Running histories: one, or many."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.testing.sim import timeline
from holdfast.testing.sim.checker import Violation
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.world import World


@dataclass
class History:
    """What came of a run."""

    options: Options
    effects: int
    violation: Violation | None
    text: str = ""


def simulate(options: Options, *, record: bool = False) -> History:
    """Run one history; with `record`, with its timeline as text."""
    world = World(options, record=record)
    violation = world.run()
    text = ""
    if world.log is not None:
        ending = "nothing was violated" if violation is None else f"VIOLATED  {violation}"
        text = "\n".join(
            [*timeline.header(world.plan), *timeline.lines(world.log, world.plan.clients), ending]
        )
    return History(options, world.effects, violation, text)


def failures(first_seed: int, count: int, options: Options) -> Iterator[History]:
    """The histories of so many seeds that violate a rule."""
    for seed in range(first_seed, first_seed + count):
        history = simulate(options.but(seed=seed))
        if history.violation is not None:
            yield history


def commit_seed(near: Path | None = None) -> int:
    """Where this commit's seeds begin: each commit looks somewhere new."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=near or Path.cwd(),
            capture_output=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return zlib.crc32(found.stdout.strip()) * 1000
