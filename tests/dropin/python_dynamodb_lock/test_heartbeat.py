"""When a client beats and checks; without a table."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from holdfast.dropin.python_dynamodb_lock.heartbeat import ADAPTIVE, Heartbeat
from holdfast.dropin.python_dynamodb_lock.models import DynamoDBLock
from tests.helpers import until

NEVER = 3600.0


class Body:
    """Locks, and what was done to them."""

    def __init__(self, count: int) -> None:
        self.locks = [
            DynamoDBLock(str(number), "-", "me", 60, "v", 0, None, None, self)
            for number in range(count)
        ]
        self.beats: Counter[str] = Counter()
        self.times: list[float] = []
        self.checks = 0
        self.hangs: dict[str, threading.Event] = {}

    def release_lock(self, lock: Any, best_effort: bool = True) -> None:
        """Not here."""

    def beat(self, lock: DynamoDBLock) -> None:
        """Remember it."""
        self.beats[lock.partition_key] += 1
        self.times.append(time.monotonic())
        if lock.partition_key in self.hangs:
            self.hangs[lock.partition_key].wait()

    def check(self) -> float:
        """Remember it."""
        self.checks += 1
        return 0.01

    def heart(self, period_s: float, beats_per_second: float = ADAPTIVE) -> Heartbeat:
        """One for these locks."""
        return Heartbeat(
            lambda: self.locks, self.beat, self.check, period_s, beats_per_second, "test"
        )


@pytest.mark.parametrize("beats_per_second", [ADAPTIVE, 500])
def test_every_lock_beats_in_turn(beats_per_second: float) -> None:
    """Again and again, none before another has had its turn."""
    body = Body(5)
    heart = body.heart(0.05, beats_per_second)
    heart.start()
    until(lambda: len(body.beats) == 5 and min(body.beats.values()) >= 4)
    heart.stop()
    assert max(body.beats.values()) - min(body.beats.values()) <= 1
    assert body.checks > 0
    stopped = sum(body.beats.values())
    time.sleep(0.1)
    assert sum(body.beats.values()) == stopped


@pytest.mark.parametrize(("beats_per_second", "gap"), [(ADAPTIVE, 0.1), (20, 0.05)])
def test_beats_are_spread(beats_per_second: float, gap: float) -> None:
    """Over the period, or so many per second; never sooner."""
    body = Body(4)
    heart = body.heart(0.4, beats_per_second)
    began = time.monotonic()
    heart.start()
    until(lambda: len(body.times) >= 4)
    heart.stop()
    # A busy machine is late, and never early.
    assert body.times[0] >= began + 0.4
    assert body.times[3] >= began + 0.4 + 3 * gap


def test_a_beat_that_hangs_holds_nobody_up() -> None:
    """Neither the others nor the checks; and it is not begun twice."""
    body = Body(3)
    body.hangs["0"] = threading.Event()
    heart = body.heart(0.05)
    heart.start()
    until(lambda: body.beats["1"] >= 4 and body.beats["2"] >= 4)
    checks = body.checks
    until(lambda: body.checks > checks)
    assert body.beats["0"] == 1
    body.hangs.pop("0").set()
    until(lambda: body.beats["0"] >= 3)
    heart.stop()


def test_stopping_does_not_wait_for_the_period() -> None:
    """It may be an hour."""
    heart = Body(1).heart(NEVER)
    heart.start()
    heart.stop()
    assert not any(thread.is_alive() for thread in heart._threads)
