"""The simulator can see: it catches every known-bad variant of the protocol."""

from __future__ import annotations

import pytest

from holdfast.core import rules, steps
from holdfast.testing.sim.exhaustive import SCOPES, explore
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import simulate
from tests.sim.mutants import MUTANTS, Mutant

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant: Mutant) -> None:
    """Within the stated number of seeds, some history breaks a rule."""
    with mutant.patches():
        for seed in mutant.seeds():
            if simulate(Options(seed, store=mutant.store)).violation is not None:
                return
    pytest.fail(f"not caught within {mutant.within} seeds")


@pytest.mark.parametrize(
    "name",
    [
        "deadline-from-after-the-reply",
        "no-margin-for-clock-rates",
        "acquire-that-loads-and-then-writes-without-compare",
        "release-without-the-token",
    ],
)
def test_small_scopes_catch_it_too(name: str) -> None:
    """Every schedule of two clients is enough for these."""
    with BY_NAME[name].patches():
        assert any(explore(scope, most=3000).violation for scope in SCOPES[:2])


def test_a_mutant_leaves_nothing_behind() -> None:
    """Afterwards the core is as it was."""
    before = steps.apply_steps, dict(rules._RULES)
    for mutant in MUTANTS:
        with mutant.patches():
            pass
    assert before == (steps.apply_steps, dict(rules._RULES))
