"""Wrong about the gate in front of what is written."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from holdfast.fencing import gate
from tests.sim.mutants.base import Patches, mutant


@mutant(60)
def _a_gate_that_compares_nothing() -> Iterator[Patches]:
    yield patch.object(gate, "admits", lambda remembered, fence: True)


@mutant(60)
def _a_gate_that_takes_each_fence_once() -> Iterator[Patches]:
    def admits(remembered: int | None, fence: int) -> bool:
        return remembered is None or remembered < fence

    yield patch.object(gate, "admits", admits)
