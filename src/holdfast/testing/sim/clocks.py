"""Clocks of the simulated world, which itself counts true time in whole microseconds.

Every party has a clock of its own that runs at a slightly different rate. The rates lie so
close together that no two clocks drift apart faster than the core allows for (1 in
`validity.RATE`): beyond that nothing is promised, and nothing is simulated.
"""

from __future__ import annotations

from random import Random

PPM = 1_000_000
MAX_DRIFT_PPM = 4_500
FASTEST_PPM = PPM + MAX_DRIFT_PPM

_MASK = (1 << 64) - 1


class Clock:
    """A clock that runs evenly, at `rate` millionths of true time."""

    __slots__ = ("offset", "rate")

    def __init__(self, rate: int, offset: int) -> None:
        self.rate = rate
        self.offset = offset

    def at(self, t: int) -> int:
        """What it shows at true time `t`."""
        return t * self.rate // PPM + self.offset

    def reaches(self, shown: int) -> int:
        """The first true time at which it shows at least this."""
        return -((self.offset - shown) * PPM // self.rate)


def drawn_rate(rng: Random) -> int:
    """A rate within the bounds; the extremes are the interesting ones, and come often."""
    if rng.random() < 0.5:
        return PPM + (MAX_DRIFT_PPM if rng.random() < 0.5 else -MAX_DRIFT_PPM)
    return PPM + int((rng.random() * 2 - 1) * MAX_DRIFT_PPM)


def stream(seed: int, *parts: int) -> Random:
    """An independent source of chance for one part of a run.

    Each operation and each incident has its own, so that leaving one out (to shrink a
    history) changes nothing in the others.
    """
    mixed = seed
    for part in parts:
        mixed = (mixed * 6_364_136_223_846_793_005 + part + 1_442_695_040_888_963_407) & _MASK
    return Random(mixed)
