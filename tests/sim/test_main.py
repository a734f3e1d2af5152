"""The command line: replay, search, shrink."""

from __future__ import annotations

import shlex

import pytest

from holdfast.testing.sim.__main__ import main
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import simulate
from holdfast.testing.sim.shrink import shrink
from tests.sim.mutants import MUTANTS

MUTANT = next(mutant for mutant in MUTANTS if mutant.name == "release-without-the-token")


def first_failure(least: int = 0) -> Options:
    """The options of the first history that the mutant breaks, after so many effects."""
    for seed in range(200):
        history = simulate(Options(seed))
        if history.violation is not None and history.effects >= least:
            return Options(seed)
    raise AssertionError("the mutant was not caught")


def test_a_seed_is_replayed_as_a_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per event, one lane per client, and what to type to see it again."""
    assert main(["--seed", "5", "--steps", "220"]) == 0
    out = capsys.readouterr().out
    assert "● · " in out
    assert "nothing was violated" in out
    assert "replay    python -m holdfast.testing.sim --seed 5 --steps 220" in out


def test_a_search_says_where_it_looked(capsys: pytest.CaptureFixture[str]) -> None:
    """The first seed and the rate are printed."""
    assert main(["--first", "70", "--count", "10"]) == 0
    out = capsys.readouterr().out
    assert "seeds from 70 on" in out
    assert "10 histories" in out


def test_a_failure_is_shrunk_and_the_command_replays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the search prints at the end breaks the same rule when it is typed in."""
    with MUTANT.patches():
        seed = first_failure().seed
        assert main(["--first", str(seed), "--count", "1"]) == 1
        out = capsys.readouterr().out
        replay = next(line for line in out.splitlines() if line.startswith("replay"))
        arguments = shlex.split(replay)[4:]
        assert main(arguments) == 1
        again = capsys.readouterr().out
    violated = [line for line in out.splitlines() if line.startswith("VIOLATED")]
    assert violated
    assert violated[-1] in again


def test_shrinking_makes_it_short() -> None:
    """The same rule breaks, in fewer effects, with fewer kinds of fault."""
    with MUTANT.patches():
        options = first_failure(least=80)
        before = simulate(options, record=True)
        after = simulate(shrink(options), record=True)
    assert before.violation is not None
    assert after.violation is not None
    assert after.violation.rule == before.violation.rule
    assert after.effects <= before.effects
    assert len(after.text) < len(before.text)


def test_only_a_failure_can_be_shrunk() -> None:
    """A run that breaks no rule has nothing to keep."""
    with pytest.raises(ValueError, match="breaks no rule"):
        shrink(Options(5))
