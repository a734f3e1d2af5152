"""Rules 3 and 4: lost stays lost, and loss is told in time; danger before that."""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief

# How soon after its moment something must be told by a watch that nothing holds up.
AT_ONCE = 2_000


class LostStaysLost(Checker):
    """A lease that was seen to be over never comes back to life."""

    rule = "lost-stays-lost"

    def looked(self, belief: Belief, valid: bool) -> None:
        if valid and (belief.lapsed or belief.told_lost):
            raise self.broken(f"{belief} was over, and is valid again")

    def extended(self, belief: Belief) -> None:
        valid = belief.valid(self.world.t)
        if valid and (belief.lapsed or belief.told_lost):
            raise self.broken(f"{belief} was over, and was renewed")


class LossIsTold(Checker):
    """Loss at the deadline, danger after two thirds of the ttl, also while a beat hangs.

    Unless the whole client stood still, or its watch was starved: then right afterwards.
    """

    rule = "loss-is-told"

    def looked(self, belief: Belief, valid: bool) -> None:
        self._check(belief)

    def finished(self) -> None:
        for beliefs in self.world.ledger.beliefs.values():
            for belief in beliefs:
                self._check(belief)

    def _check(self, belief: Belief) -> None:
        hold, client, t = belief.hold, belief.client, self.world.t
        if hold.state != "held" or client.dead:
            return
        soon = AT_ONCE + self.world.plan.watch_late
        free_since = max(client.impeded_until, belief.since) + soon
        if t > max(client.clock.reaches(hold.deadline) + soon, free_since):
            raise self.broken(f"the deadline of {belief} has passed, and nobody was told")
        danger_at = client.clock.reaches(hold.renewed + 2 * hold.ttl // 3) + soon
        if hold.care.keep and not belief.danger and t > max(danger_at, free_since):
            raise self.broken(f"{belief} is in danger, and nobody was told")
