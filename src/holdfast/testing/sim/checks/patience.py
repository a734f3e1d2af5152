"""Nobody hammers the store: somebody who waits asks now and then, not all the time.

An operation may send some requests by itself, a few more for each second that it takes,
and a few for every write of others, each of which may wake it or get in its way.
"""

from __future__ import annotations

from holdfast.core.records import SECOND
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Landing
from holdfast.testing.sim.ops import Op

BY_ITSELF = 40
PER_SECOND = 15
PER_WRITE = 4


class Patience(Checker):
    """Counts the requests of each operation."""

    rule = "patience"

    def __init__(self) -> None:
        self._writes = 0

    def landed(self, landing: Landing) -> None:
        self._writes += 1

    def op_done(self, op: Op) -> None:
        took = self.world.t - op.started
        fair = BY_ITSELF + PER_SECOND * took // SECOND + PER_WRITE * self._writes
        if op.requests > fair:
            raise self.broken(f"{op} sent {op.requests} requests in {took} µs")
