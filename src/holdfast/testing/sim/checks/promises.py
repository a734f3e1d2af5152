"""A call is back when it was promised: with a timeout, a little after it is over; without one, and
not to wait for a lock, when one request may have taken its longest. Whatever the store does.

A client that stands still cannot keep a promise.
"""

from __future__ import annotations

from holdfast.core.records import Micros
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import LONGEST_WAKE

# A thread that is woken may be late, and a wait is rounded up.
SLACK: Micros = LONGEST_WAKE + 2_000


class Promises(Checker):
    """Compares when a call is back with when it was to be."""

    rule = "in-time"

    def came_back(self, op: Op, began: Micros, by: Micros) -> None:
        client = op.client
        if client.stood_still_until >= began:
            return
        late = client.now() - by
        if late > SLACK:
            raise self.broken(f"{op} came back {late} µs later than promised")
