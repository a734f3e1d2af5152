"""The example is run as its README says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from tests.engines.base import require
from tests.engines.redis import RedisServer
from tests.integrations.celery.worker import ROOT


def test_the_example() -> None:
    """One command starts everything, tells the story and ends."""
    require(RedisServer)
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    program = subprocess.Popen(
        [sys.executable, "-m", "examples.celery_refresh"],
        cwd=ROOT, env=environment, start_new_session=True,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = program.communicate(timeout=100)
    finally:
        with suppress(ProcessLookupError):  # nobody is left of a program that ended well
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 0, output
    for line in (
        "partial: skipped=True",
        "for examples.celery_refresh.tasks.refresh_full[",
        "partial: stopped early",
        "full:    done",
        "chain:   written",
        "The cache has 12 audiences.",
    ):
        assert line in output, output
    starts = [int(line.split("fence ")[1]) for line in output.splitlines() if "fence " in line]
    assert starts == sorted(set(starts))
