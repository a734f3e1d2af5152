"""Histories from seeds that nobody has seen; `make sim` searches for longer, in CI too."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.testing.sim.kinds import KINDS
from holdfast.testing.sim.plan import FAULTS, Options, make_plan
from holdfast.testing.sim.runs import simulate, unseen_seed

HISTORIES = 400
LONGEST_S = 120.0  # a busy machine runs fewer of them, but some
FEWEST_HISTORIES = 100
FEWEST_EFFECTS = 200
FIRST_SEED = unseen_seed()


@pytest.mark.timeout(300)
def test_no_history_breaks_a_rule(record_property: Callable[[str, object], None]) -> None:
    """Safety under faults, then progress once they stop, for seeds of this run alone."""
    started = time.monotonic()
    ran = effects = 0
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        history = simulate(Options(seed))
        assert history.violation is None, f"{history.violation}\n{history.options.command()}"
        assert history.effects >= FEWEST_EFFECTS, history.options.command()
        ran, effects = ran + 1, effects + history.effects
        if time.monotonic() - started > LONGEST_S:
            break
    record_property(
        "summary",
        f"simulator: {ran} histories, {effects} effects, "
        f"seeds {FIRST_SEED} to {FIRST_SEED + ran - 1}",
    )
    assert ran >= FEWEST_HISTORIES


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
