"""A server that stands still holds nobody up: every call comes back when it was promised.

`python -m tests.frozen` measures the same to the hundredth of a second. Here the limits are far
above what is promised, because the machine may be busy, and far below what a call that waits for
the server takes.
"""

from __future__ import annotations

import pytest

from tests.frozen.measure import FACES, measure
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
