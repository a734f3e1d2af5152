"""Nobody hammers the store, and nobody waits for longer than the caller is ready to.

Somebody who waits asks now and then, not all the time. An operation may send some requests
by itself, a few more for each second that it takes, and a few for every write of others,
each of which may wake it or get in its way.

A call with a timeout comes back in time, but for the requests that are then under way and
the pause before the next try; unless its client stood still.
"""

from __future__ import annotations

from holdfast.core.records import SECOND
from holdfast.core.steps import LONGEST_PAUSE
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Landing
from holdfast.testing.sim.ops import Op

BY_ITSELF = 40
PER_SECOND = 15
PER_WRITE = 4
TRIPS = 5


class RequestsAndTimeouts(Checker):
    """Counts the requests of each operation, and checks that its timeout is kept."""

    rule = "patience"

    def __init__(self) -> None:
        self._writes = 0

    def landed(self, landing: Landing) -> None:
        self._writes += 1

    def op_done(self, op: Op) -> None:
        self._check_timeout(op)
        took = self.world.t - op.started
        fair = BY_ITSELF + PER_SECOND * took // SECOND + PER_WRITE * self._writes
        if op.requests > fair:
            raise self.broken(f"{op} sent {op.requests} requests in {took} µs")

    def _check_timeout(self, op: Op) -> None:
        plan = self.world.plan
        if op.timeout is None or op.client.stood_still_until >= op.started:
            return
        keys = max(1, len(op.attempts))
        late = op.back_at - op.started - op.timeout * 101 // 100
        if late > keys * TRIPS * plan.request_timeout + LONGEST_PAUSE:
            raise self.broken(f"{op} came back {late} µs after its timeout of {op.timeout}")
