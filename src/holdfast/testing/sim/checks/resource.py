"""What the lock protects: one resource that checks the fence, and one that only records.

The fenced one refuses a number below one it has seen. Whoever rightly believes to hold an
exclusive lease must never be refused: its fence is the largest ever given. On a store that
promises no exclusion, the fenced resource is what still keeps the order.
"""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief


class Resource(Checker):
    """Writes to both resources whenever an exclusive holder looks and finds itself valid."""

    rule = "fenced-resource"

    def __init__(self) -> None:
        self.fenced: dict[str, int] = {}
        self.unfenced: dict[str, list[int]] = {}
        self.refused = 0

    def looked(self, belief: Belief, valid: bool) -> None:
        hold = belief.hold
        if not valid or hold.holder.mode != "exclusive":
            return
        self.unfenced.setdefault(hold.key, []).append(hold.fence)
        if hold.fence >= self.fenced.get(hold.key, 0):
            self.fenced[hold.key] = hold.fence
            return
        self.refused += 1
        world = self.world
        if world.plan.kind.compares and not world.ledger.excused(belief):
            raise self.broken(f"{belief} is valid, and its write was refused")
