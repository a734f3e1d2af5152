"""Every schedule of two clients and a handful of effects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.testing.sim.exhaustive import SCOPES, Chooser, Scope, explore

DEPTH = 7


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_no_schedule_breaks_a_rule(scope: Scope) -> None:
    """With a lost reply, an interrupt or a slow request at every place there is."""
    found = explore(replace(scope, depth=DEPTH))
    assert found.violation is None, f"{found.violation}\n{found.choices}\n{found.text}"
    assert found.schedules > 500


def test_all_sequences_of_choices_are_tried_once() -> None:
    """The chooser counts through them like an odometer."""
    seen = []
    prefix: list[int] | None = []
    while prefix is not None:
        chooser = Chooser(prefix, depth=3)
        seen.append(tuple(chooser.choose(options) for options in (2, 1, 3, 2, 5)))
        prefix = chooser.next_prefix()
    assert len(seen) == len(set(seen)) == 2 * 3 * 2
    assert all(choices[4] == 0 for choices in seen)
