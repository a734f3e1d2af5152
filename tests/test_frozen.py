"""A server that stands still holds nobody up: every call comes back when it was promised.

`python -m tests.frozen` measures the same to the hundredth of a second. Here the limits are far
above what is promised, because the machine may be busy, and far below what a call that waits for
the server takes.
"""

from __future__ import annotations

import pytest

from tests.frozen.__main__ import CALLS, NAMES, PAGE, Results, table, too_late, within
from tests.frozen.measure import FACES, Measured, measure
from tests.frozen.sites import SITES

REQUEST_TIMEOUT_S = 1.0
# What is promised is half a second.
LATE_S = 4.0


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("store", SITES)
def test_every_call_comes_back_in_time(store: str, face: str) -> None:
    """With a timeout, without one, interrupted, cancelled; and so does the program's end."""
    with SITES[store]() as site:
        measured = measure(site, face, REQUEST_TIMEOUT_S)
    late = [one for one in measured if one.late_s > LATE_S]
    assert not late, late
    outcomes = {one.call: one.outcome for one in measured}
    assert outcomes["try_acquire"] in ("Unavailable", "OutcomeUnknown"), outcomes
    assert outcomes["end of with"] == outcomes["close"] == "returned", outcomes


def test_the_page_has_every_call_and_store() -> None:
    """`python -m tests.frozen --write` has written it."""
    page = PAGE.read_text()
    assert within(page, "the table") != page
    for label, _ in CALLS.values():
        assert f"| {label} |" in page
    assert " | ".join(NAMES.get(store, store) for store in SITES) in page


def test_what_is_late_is_told() -> None:
    """Half a second more than was promised is late; the end of a program has no more than that."""
    rows = {"show": Measured("show", 5.6, 5, "Unavailable"), "exit": Measured("exit", 1.9, 2, "")}
    results: Results = {("redis", "sync"): rows, ("redis", "async"): {}}
    assert list(too_late(results)) == ["redis, sync: `show` took 5.60 s"]
    calls = {name: Measured(name, 0.5, 0, "") for name in CALLS}
    shown = table({("redis", "sync"): calls, ("redis", "async"): {}}, ["redis"])
    assert "| call | promised | Redis |" in shown
    assert "| `lease.check()` | 0 s | 0.50 / - |" in shown
