"""A lease that is to be kept is kept, as long as nothing is in the way.

If neither the network, nor the store, nor the client itself was in trouble for half of the
ttl, a lease must not run out: a failed beat is tried again a twelfth of the ttl later.
"""

from __future__ import annotations

from holdfast.core.holds import BEATS_PER_TTL
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief


class Keeping(Checker):
    """Asks of each lease that ran out: what was the trouble?"""

    rule = "kept-while-it-can-be"

    def ended(self, belief: Belief, how: str) -> None:
        world, hold, client = self.world, belief.hold, belief.client
        if how != "lost" or not hold.care.keep or not world.plan.kind.compares:
            return
        if client.now() < hold.deadline or world.ledger.excused(belief):
            return
        if (
            hold.care.max_hold is not None
            and client.now() >= hold.acquired + hold.care.max_hold // 2
        ):
            return
        quiet = world.t - max(client.last_trouble, client.impeded_until, belief.since)
        lateness = 4 * (world.plan.latency + world.plan.jitter) + world.plan.watch_late
        if lateness > hold.ttl // BEATS_PER_TTL:
            return  # a ttl so short that two trips fill its period
        if quiet > hold.ttl // 2 + 2 * lateness:
            raise self.broken(f"{belief} ran out, though nothing was wrong for {quiet} µs")
