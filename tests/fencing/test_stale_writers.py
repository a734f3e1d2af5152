"""Processes that are stopped between check and write; `python -m tests.stale_writers` has more."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.stale_writers.play import Outcome, Stage
from tests.stale_writers.targets import TARGETS

TRIES = 2


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """All targets."""
    return Stage(TARGETS, tmp_path_factory.mktemp("stale"))


@pytest.mark.timeout(300)
def test_a_stopped_holder_makes_no_stale_write(stage: Stage) -> None:
    """Whoever was stopped before it was admitted is refused; whoever was stopped within its
    transaction is earlier in the order. The newer value is there in every case."""
    outcomes = stage.round(stage.writes(TRIES, guarded=True))
    none_of(outcome for outcome in outcomes if outcome.stale_write or not expected(outcome))


def none_of(wrong: Iterable[Outcome]) -> None:
    """Fail with all that is wrong."""
    if found := "\n".join(map(str, wrong)):
        pytest.fail(found, pytrace=False)


def expected(outcome: Outcome) -> bool:
    """Whether the old holder was told what it had to be told."""
    return outcome.said == ("written" if outcome.write.inside else "stale")


@pytest.mark.timeout(300)
def test_a_busy_holder_stopped_anywhere(stage: Stage) -> None:
    """It writes all the time under its lease, and is stopped at whatever instruction it is."""
    writes = [write for write in stage.writes(1, guarded=True) if not write.inside]
    outcomes = stage.round(writes, busy=True)
    none_of(outcome for outcome in outcomes if outcome.stale_write or outcome.said == "written")


@pytest.mark.timeout(300)
def test_without_a_gate_it_does(stage: Stage) -> None:
    """On every target: so the test above can fail."""
    outcomes = stage.round(stage.writes(1, guarded=False))
    assert {outcome.write.target for outcome in outcomes if outcome.stale_write} == set(TARGETS)
