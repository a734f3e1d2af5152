"""The example is run as its README says."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.engines.base import require
from tests.engines.redis import RedisServer
from tests.integrations.celery.worker import ROOT


def test_the_example() -> None:
    """One command starts everything, tells the story and ends."""
    require(RedisServer)
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    run = subprocess.run(
        [sys.executable, "-m", "examples.celery_refresh"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    for line in (
        "partial: skipped=True",
        "for examples.celery_refresh.tasks.refresh_full[",
        "partial: stopped early",
        "full:    done",
        "chain:   written",
        "The cache has 12 audiences.",
    ):
        assert line in run.stdout, run.stdout + run.stderr
    starts = [int(line.split("fence ")[1]) for line in run.stdout.splitlines() if "fence " in line]
    assert starts == sorted(set(starts))
