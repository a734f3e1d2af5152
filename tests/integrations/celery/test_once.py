"""`@once_per_key` in a real worker, and `celery beat` on two machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadOption, UsageError
from holdfast.integrations.celery import once_per_key
from holdfast.results import DirectoryResults
from tests.cli.program import until
from tests.integrations.celery import app as tasks
from tests.integrations.celery.conftest import World
from tests.integrations.celery.worker import Worker

ROOT = Path(__file__).parents[3]


def test_later_calls_get_the_first_ones_result(world: World, worker: Worker) -> None:
    """Of several calls at once one does the work, and one that comes later does none."""
    item = "once"
    calls = [tasks.made_once.delay(item, 0.5) for _ in range(3)]
    results = {call.get(timeout=60) for call in calls}
    assert len(results) == 1
    assert tasks.made_once.delay(item, 0).get(timeout=60) in results
    assert len(world.journal.entries("begin", key=f"item:{item}")) == 1
    assert world.free(item)


def test_a_task_that_fails_is_run_by_the_next_call(world: World, worker: Worker) -> None:
    """Its own caller gets the exception."""
    with pytest.raises(ZeroDivisionError):
        tasks.made_once.delay("fails", -1).get(timeout=60)
    assert tasks.made_once.delay("fails", 0).get(timeout=60) > 0


@pytest.mark.parametrize(
    "options", [{"into": 7}, {"into": DirectoryResults("."), "ttl": -1}, {"into": int, "note": 1}]
)
def test_bad_options(options: dict[str, Any]) -> None:
    """They are refused where the decorator is written."""
    with pytest.raises(BadOption):
        once_per_key("k", **options)


def test_it_goes_under_the_task() -> None:
    """Above `@app.task` it would not be seen by a worker."""
    with pytest.raises(UsageError, match=r"under @app\.task"):
        once_per_key("item:{item}", into=DirectoryResults("."))(tasks.waits)


class Beat:
    """One machine's `celery beat`."""

    def __init__(self, world: World, name: str) -> None:
        self.log = world.folder / f"{name}.log"
        command = [
            *(sys.executable, "-m", "celery", "-A", "tests.integrations.celery.app", "beat"),
            *("-S", "holdfast.integrations.celery.beat.LeadingScheduler", "-l", "info"),
            *("-s", str(world.folder / f"{name}.db"), "--pidfile", "", "--max-interval", "1"),
        ]
        env = {**os.environ, **world.environment, tasks.BEAT_VARIABLE: "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)

    @property
    def sent(self) -> int:
        """How many tasks it has sent."""
        return self.log.read_text().count("Sending due task")

    def end(self, signum: int) -> None:
        """Stop it, or kill it."""
        self.process.send_signal(signum)
        self.process.wait(60)


def _active(beats: list[Beat]) -> Beat | None:
    return next((each for each in beats if each.sent >= 2), None)


def test_one_of_two_beats_is_active(world: World) -> None:
    """Only the leader sends; when it is stopped or killed, the other one goes on."""
    beats = [Beat(world, "one"), Beat(world, "two")]
    try:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            leader = until(partial(_active, beats))
            others = [each for each in beats if each is not leader]
            assert all(each.sent == 0 for each in others)
            leader.end(signum)
            beats = [*others, Beat(world, f"after-{signum}")]
        until(lambda: any(each.sent for each in beats))
    finally:
        for each in beats:
            each.process.kill()
            each.process.wait()
