"""The command line: replay, search, shrink."""

from __future__ import annotations

import math
import shlex

import pytest

from holdfast.testing.sim import jobs as jobs_module
from holdfast.testing.sim.__main__ import main
from holdfast.testing.sim.jobs import PIECE, search_in_jobs
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import search, simulate
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


def test_a_search_begins_where_nobody_has_looked(capsys: pytest.CaptureFixture[str]) -> None:
    """Two searches run other seeds, and each says which."""
    firsts = set()
    for _ in range(2):
        assert main(["--count", "1"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0].startswith("seeds from ")
        assert said[-1].endswith(f"no rule broken, {said[0]}")
        firsts.add(said[0])
    assert len(firsts) == 2


def test_a_search_ends_in_time_though_there_are_seeds_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A count and a time: what comes first ends it."""
    assert main(["--count", "1000000", "--minutes", "0.01"]) == 0
    ran = int(capsys.readouterr().out.splitlines()[-1].split()[0])
    assert 0 < ran < 100_000


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_search_by_several_processes(jobs: int) -> None:
    """They share the seeds, and none is left out."""
    said: list[str] = []
    found = search_in_jobs(Options(0), range(70, 70 + PIECE + 7), math.inf, jobs, said.append)
    assert (found.histories, found.failure, said) == (PIECE + 7, None, [])
    alone = search(Options(0), 70, PIECE + 7)
    assert found.effects == alone.effects


def test_a_long_search_says_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody knows for hours whether it does anything."""
    monkeypatch.setattr(jobs_module, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(jobs_module, "PIECE", 2)
    said: list[str] = []
    search_in_jobs(Options(0), range(4), math.inf, 1, said.append)
    assert said == ["2 histories so far", "4 histories so far"]


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
