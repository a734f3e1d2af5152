"""Wrong about what is built on a lock: once, and leading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from holdfast.core import leading, once
from holdfast.core.caller_effects import CAMPAIGN, FIND, Make
from holdfast.testing.sim import patterns
from tests.sim.mutants.base import Patches, mutant


@mutant(1500)
def _a_once_that_trusts_a_stale_find() -> Iterator[Patches]:
    def make_steps(key: str, lease: Any) -> once.OnceSteps[Any]:
        yield from Make(lease)
        return (yield from FIND)

    yield patch.object(once, "_make_steps", make_steps)


@mutant(600)
def _a_leader_that_does_not_stop() -> Iterator[Patches]:
    yield patch.object(patterns, "must_end", lambda belief: False)


@mutant(400, seen_at=109)
def _a_candidate_that_gives_up_in_an_outage() -> Iterator[Patches]:
    def campaign_steps() -> leading.LeadSteps[Any]:
        return (yield from CAMPAIGN)

    yield patch.object(leading, "_campaign_steps", campaign_steps)
