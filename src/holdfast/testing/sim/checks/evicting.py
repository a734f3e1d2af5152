"""An operator's word counts for those who hold when it is given, however often it arrives.

Once an eviction has thrown somebody out, or has come back to its caller, whatever of it still
arrives throws out nobody who came later. And the caller is told of everyone who had to go by
it, also when the answer to the first attempt was lost.
"""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Landing
from holdfast.testing.sim.ops import Op


class Evicting(Checker):
    """Remembers how far the fences were when an eviction was over."""

    rule = "evicts-nobody-new"

    def __init__(self) -> None:
        self._up_to: dict[Op, dict[str, int]] = {}  # by key
        self._out: dict[Op, set[int]] = {}

    def landed(self, landing: Landing) -> None:
        op, key = landing.op, landing.key
        if op.kind != "evict" or not self.world.plan.kind.compares or not landing.left:
            return
        up_to = self._up_to.setdefault(op, {key: landing.before.fence})[key]
        for holder in landing.left:
            if holder.fence > up_to:
                raise self.broken(f"{op} threw {holder} out of {key}, who came after it")
            self._out.setdefault(op, set()).add(holder.fence)

    def op_done(self, op: Op) -> None:
        if op.kind != "evict":
            return
        world = self.world
        fences = {key: world.store.record(key).fence for key in world.plan.keys}
        self._up_to.setdefault(op, fences)
        untold = self._out.get(op, set()) - op.evicted
        if op.outcome is None and untold:
            raise self.broken(f"{op} was not told that it threw out {untold}")
