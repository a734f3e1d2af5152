"""`once` and `lead` with real processes that are killed; the long runs are `tests.makers` and
`tests.leaders`."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from tests import leaders, makers
from tests.engines.redis import RedisServer
from tests.engines.shared import shared


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_makers_are_killed(store: str, tmp_path: Path) -> None:
    """All who live get the one result, and work began at most once more than there were deaths."""
    url = f"sqlite://{tmp_path}/locks.db"
    if store == "redis":
        url = f"redis://127.0.0.1:{shared(RedisServer).port}/7"
    with holdfast.connect(url) as locks:
        locks.setup()
        locks.evict(makers.KEY)
    outcome = makers.play(url, {}, processes=6, kills=2)
    assert outcome.good, outcome


def test_leaders_are_killed_stopped_and_asked_to_resign() -> None:
    """No two act at once by their fences, and no candidate gives up. (That the next one comes in
    time is for a quiet machine: see `python -m tests.leaders`.)"""
    plan = leaders.Plan(minutes=0.15, candidates=3, outages=1, outage_s=3.5)
    with leaders.server_of("redis") as server:
        company = leaders.play(server, plan)
    assert company.terms >= 2
    assert [each for each in company.trouble if leaders.LATE not in each] == []
