"""Contestants in turns, round after round, so that a noisy machine hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Contestant:
    """Something to be measured: a call that is made many times in a round."""

    name: str
    call: Callable[[], object]
    rounds: list[float] = field(default_factory=list)

    @property
    def micros(self) -> float:
        """The median over the rounds, in microseconds a call."""
        return statistics.median(self.rounds) * 1e6

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a part of the median."""
        low, _, high = statistics.quantiles(self.rounds, n=4)
        return (high - low) / 2 / statistics.median(self.rounds)


def race(contestants: list[Contestant], *, calls: int, rounds: int = 9) -> None:
    """Measure all, in turns."""
    for contestant in contestants:
        _round(contestant.call, max(1, calls // 10))
    for _ in range(rounds):
        for contestant in contestants:
            contestant.rounds.append(_round(contestant.call, calls))


def _round(call: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def table(title: str, contestants: list[Contestant], peer: Contestant) -> str:
    """Markdown: who is how fast, and how many times as fast as the peer."""
    lines = [f"### {title}", "", "| | µs | per second | spread | ratio |", "|---|---|---|---|---|"]
    for one in contestants:
        ratio = peer.micros / one.micros
        lines.append(
            f"| {one.name} | {one.micros:.1f} | {1e6 / one.micros:,.0f} | ±{one.spread:.0%} "
            f"| {ratio:.2f} |"
        )
    return "\n".join(lines)
