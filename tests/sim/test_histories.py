"""Thousands of histories, from seeds that are new with every commit."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from holdfast.testing.sim.kinds import KINDS
from holdfast.testing.sim.plan import FAULTS, Options, make_plan
from holdfast.testing.sim.runs import commit_seed, simulate

HISTORIES = 2_000
FEWEST_EFFECTS = 200
FIRST_SEED = commit_seed(Path(__file__).parent)


@pytest.mark.timeout(300)
def test_no_history_breaks_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """Safety under faults, then progress once they stop, for this commit's seeds."""
    started = time.monotonic()
    effects = 0
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        history = simulate(Options(seed))
        effects += history.effects
        assert history.violation is None, f"{history.violation}\n{history.options.command()}"
        assert history.effects >= FEWEST_EFFECTS
    took = time.monotonic() - started
    with capsys.disabled():
        sys.stdout.write(
            f"\nsimulator: seeds {FIRST_SEED} to {FIRST_SEED + HISTORIES - 1}, {effects} effects, "
            f"{HISTORIES / took:.0f} histories/s\n"
        )


@pytest.mark.parametrize("store", KINDS)
def test_every_kind_of_store_holds(store: str) -> None:
    """The kinds that the seeds choose seldom get their share."""
    for seed in range(FIRST_SEED, FIRST_SEED + 60):
        history = simulate(Options(seed, store=store))
        assert history.violation is None, f"{history.violation}\n{history.options.command()}"


def test_the_swarm_switches_every_fault_on_and_off() -> None:
    """Each kind of fault is on in some runs and off in others."""
    plans = [make_plan(Options(seed)) for seed in range(300)]
    for fault in FAULTS:
        on = sum(fault in plan.faults for plan in plans)
        assert 0 < on < len(plans), fault


def test_a_world_without_faults_is_left_alone() -> None:
    """Faults that are switched off do not happen, and nothing is lost then."""
    for seed in range(40):
        history = simulate(Options(seed, without=FAULTS), record=True)
        assert history.violation is None
        assert "faults    none" in history.text
        assert " fails " not in history.text
