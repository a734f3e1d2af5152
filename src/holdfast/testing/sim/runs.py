"""Running histories: one, or many."""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass
from typing import NamedTuple

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


class Found(NamedTuple):
    """What came of many histories: how many were run, and the first that broke a rule."""

    histories: int
    effects: int
    failure: History | None


def search(options: Options, first_seed: int, count: int, ends_at: float = math.inf) -> Found:
    """Run the histories of so many seeds, until one breaks a rule or `time.monotonic` says
    that it is time to end."""
    effects = 0
    for ran in range(count):
        if time.monotonic() >= ends_at:
            return Found(ran, effects, None)
        history = simulate(options.but(seed=first_seed + ran))
        effects += history.effects
        if history.violation is not None:
            return Found(ran + 1, effects, history)
    return Found(count, effects, None)


def unseen_seed() -> int:
    """A first seed that nobody has begun with before, with room for a billion after it."""
    return secrets.randbelow(10**9) * 10**9
