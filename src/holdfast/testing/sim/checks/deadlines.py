"""Rule 2: the store gives a holder at least as long as the holder gives itself.

Looked at from inside, whenever a party begins or goes on to believe: at the moment at
which its own clock reaches its deadline, nobody who looks at the record may yet find it
dead. By the store's clock, that is its `expires_at`; where somebody may have to judge without
a clock, the soonest is a ttl after it landed, by the fastest clock there can be.

This sees a wrong deadline at once, without waiting for a rival to come at the one moment
in which it matters.
"""

from __future__ import annotations

from holdfast.core import rules
from holdfast.core.records import Holder
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.clocks import FASTEST_PPM, PPM
from holdfast.testing.sim.ledger import Belief


class Deadlines(Checker):
    """Compares both ends of a lease."""

    rule = "deadline"

    def begun(self, belief: Belief) -> None:
        self._check(belief)

    def extended(self, belief: Belief) -> None:
        self._check(belief)

    def _check(self, belief: Belief) -> None:
        world, hold = self.world, belief.hold
        if not world.plan.kind.compares or world.ledger.excused(belief):
            return
        holder: Holder | None = rules.find(world.store.record(hold.key).holders, hold.token)
        if holder is None or hold.state != "held":
            return  # how it went is for `tokens` to judge
        last = belief.client.clock.reaches(hold.deadline) - 1
        short = 0
        if holder.expires_at:
            short = world.store.clock.at(last) - holder.expires_at
        if not holder.expires_at or not world.plan.kind.always_tells_time:
            landed_at = world.ledger.landed_at[holder.token, holder.beat]
            short = max(short, last - landed_at - holder.ttl * PPM // FASTEST_PPM)
        if short > 0:
            raise self.broken(f"{belief} believes {short} µs longer than its record lasts")
