"""Wrong about keeping a lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from holdfast.core import keeper
from holdfast.core.holds import Hold
from tests.sim.mutants.base import Patches, mutant


@mutant(600, seen_at=105)
def _a_keeper_that_stops_after_one_failed_beat() -> Iterator[Patches]:
    original = keeper.Keeper.beat_done

    def beat_done(self: keeper.Keeper, hold: Hold, now: int, *, renewed: bool) -> bool:
        rescued = original(self, hold, now, renewed=renewed)
        if not renewed and hold in self._kept:
            self._kept[hold].next_beat = None
        return rescued

    yield patch.object(keeper.Keeper, "beat_done", beat_done)


@mutant(100)
def _a_keeper_that_tells_no_loss_while_a_beat_hangs() -> Iterator[Patches]:
    original = keeper.Keeper._fire

    def fire(self: keeper.Keeper, kept: Any, now: int, due: Any) -> None:
        if not kept.beating:
            original(self, kept, now, due)

    yield patch.object(keeper.Keeper, "_fire", fire)


@mutant(100)
def _a_keeper_that_tells_no_danger() -> Iterator[Patches]:
    yield patch.object(keeper._Kept, "danger_at", lambda self: self.hold.deadline)


@mutant(60)
def _a_keeper_that_never_beats() -> Iterator[Patches]:
    def plan(self: keeper.Keeper, kept: Any, at: int) -> None:
        kept.next_beat = None

    yield patch.object(keeper.Keeper, "_plan", plan)
