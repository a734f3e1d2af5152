"""Where waiters can only poll, those who want a lock again and again get about as much of it."""

from __future__ import annotations

import random
import statistics

import pytest

from holdfast.core.records import SECOND
from tests.core.polled_store import Client, World

SEEDS = range(12)
TURN = 8 * SECOND // 10


def shares(monkeypatch: pytest.MonkeyPatch, trip: int, seed: int) -> list[int]:
    """How often each of eight clients gets the lock within a turn of the benchmarks."""
    rng = random.Random(seed)
    monkeypatch.setattr("holdfast.stores.waiting.pace.random", rng)
    world = World(trip, rng)
    clients = [Client(world, str(number)) for number in range(8)]
    world.run(TURN)
    return [client.got for client in clients]


@pytest.mark.parametrize("trip", [3000, 8000])
def test_nobody_gets_three_times_the_median(monkeypatch: pytest.MonkeyPatch, trip: int) -> None:
    """Neither by being the first, nor by taking the lock again before the others have looked."""
    found = [shares(monkeypatch, trip, seed) for seed in SEEDS]
    largest = [max(counts) / max(1, statistics.median(counts)) for counts in found]
    assert statistics.median(largest) < 2.5
    assert statistics.quantiles(largest, n=4)[2] <= 3


def test_who_is_nearly_alone_is_hardly_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that comes once a second costs it a few pauses, not its pace."""
    rng = random.Random(1)
    monkeypatch.setattr("holdfast.stores.waiting.pace.random", rng)
    world = World(3000, rng)
    busy, rare = Client(world, "busy"), Client(world, "rare", pause=SECOND)
    world.run(10 * SECOND)
    alone = World(3000, rng)
    lonely = Client(alone, "lonely")
    alone.run(10 * SECOND)
    assert rare.got >= 5
    assert busy.got > 0.6 * lonely.got
