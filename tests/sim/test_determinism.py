"""The same seed gives the same history, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.testing.sim.kinds import KINDS
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import simulate

SEEDS = range(7, 17)
_PRINT = """
import sys
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import simulate
for seed in range(7, 17):
    sys.stdout.write(simulate(Options(seed), record=True).text)
"""


def histories() -> str:
    """The histories of some seeds, as text."""
    return "".join(simulate(Options(seed), record=True).text for seed in SEEDS)


def test_twice_in_one_process() -> None:
    """Nothing is left over from one run to the next."""
    assert histories() == histories()


def test_in_another_process_with_other_hashes() -> None:
    """Neither the order of sets nor anything else of the process gets in."""
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    other = subprocess.run(
        [sys.executable, "-c", _PRINT], env=environment, capture_output=True, check=True, timeout=60
    )
    assert other.stdout.decode() == histories()


def test_recording_changes_nothing() -> None:
    """A run that is printed is the run that failed."""
    for seed in SEEDS:
        assert simulate(Options(seed), record=True).effects == simulate(Options(seed)).effects


@pytest.mark.parametrize("store", KINDS)
def test_leaving_out_an_operation_leaves_the_others_alone(store: str) -> None:
    """Up to where it would have begun, the history stays as it is."""
    whole = simulate(Options(3, store=store), record=True).text.splitlines()
    starts = next(place for place, line in enumerate(whole) if "starts 1.0.2 " in line)
    part = simulate(Options(3, store=store, skip=("1.0.2",)), record=True).text.splitlines()
    assert part[:starts] == whole[:starts]
    assert part != whole
