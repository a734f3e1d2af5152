"""What a holder writes some time after it has looked: it may have stood still in between.

Each write goes to two resources. The one with a gate (`fencing.gate`) must never take a write after
one with a larger fence, and must take that of whoever is valid at that moment. The one without a
gate takes everything, and so do the late ones: that is what no lock can prevent.
"""

from __future__ import annotations

from holdfast.fencing import gate
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief


class LateWrites(Checker):
    """Keeps both resources."""

    rule = "no-late-write"

    def __init__(self) -> None:
        self._remembered: dict[str, int] = {}  # the gate's memory
        self.fenced: dict[str, list[int]] = {}
        self.unfenced: dict[str, list[int]] = {}
        self.refused = 0

    def wrote(self, belief: Belief) -> None:
        key, fence = belief.hold.key, belief.hold.fence
        self.unfenced.setdefault(key, []).append(fence)
        taken = self.fenced.setdefault(key, [])
        if not gate.admits(self._remembered.get(key), fence):
            self._refuse(belief)
            return
        self._remembered[key] = fence
        if taken and fence < max(taken):
            raise self.broken(f"{belief} wrote with {fence} after {max(taken)}")
        taken.append(fence)

    def _refuse(self, belief: Belief) -> None:
        self.refused += 1
        world = self.world
        promised = world.plan.kind.compares and not world.ledger.excused(belief)
        if promised and belief.valid(world.t):
            raise self.broken(f"{belief} is valid, and its write was refused")

    @property
    def late_without_a_gate(self) -> int:
        """How many writes came to the resource without a gate after one with a larger fence."""
        late = 0
        for fences in self.unfenced.values():
            largest = 0
            for fence in fences:
                late += fence < largest
                largest = max(largest, fence)
        return late
