"""The example is run as its README says."""

from __future__ import annotations

import os

from tests.engines.base import require
from tests.engines.redis import RedisServer
from tests.examples.story import tell_story


def test_the_example() -> None:
    """One command starts everything, tells the story and ends."""
    require(RedisServer)
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    output = tell_story("celery_refresh", env=environment)
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
