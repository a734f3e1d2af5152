"""Every case on every store through both faces."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.stores.registry import ALIASES, BUILT_IN
from holdfast.testing.conformance import CASES, FACES, Face, run_case
from tests.conformance.targets import TARGETS

# What is not a store of locks: it grants everything.
NOT_CONFORMING = {"null"}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("store", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, store: str, face: Face, tmp_path: Path) -> None:
    """A conformance case holds."""
    run_case(name, TARGETS[store](tmp_path), face)


def test_no_combination_is_missing(request: pytest.FixtureRequest) -> None:
    """Every built-in store has run every case through both faces."""
    assert set(BUILT_IN) - NOT_CONFORMING <= set(TARGETS)
    assert set(ALIASES.values()) <= set(BUILT_IN)
    parameters = {
        (item.callspec.params["name"], item.callspec.params["store"], item.callspec.params["face"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_case
    }
    if len(parameters) > 1:  # unless one was picked by hand
        assert parameters == {(n, s, f) for n in CASES for s in TARGETS for f in FACES}
