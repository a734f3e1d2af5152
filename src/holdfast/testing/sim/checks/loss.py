"""Rules 3 and 4: lost stays lost, and loss is told in time; danger before that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient

# How soon after its moment something must be told by a watch that nothing holds up.
AT_ONCE = 2_000


class LostStaysLost(Checker):
    """A lease that was seen to be over never comes back to life, nor is it passed on."""

    rule = "lost-stays-lost"

    def __init__(self) -> None:
        self._lost: set[tuple[SimClient, str]] = set()  # whose, and its token

    def begun(self, belief: Belief) -> None:
        if belief.op.kind != "join" and (belief.client, belief.hold.token) in self._lost:
            raise self.broken(f"{belief} was lost, and was passed on")

    def ended(self, belief: Belief, how: str) -> None:
        if how == "lost":
            self._lost.add((belief.client, belief.hold.token))

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
        danger_at = max(client.clock.reaches(hold.renewed + 2 * hold.ttl // 3) + soon, free_since)
        if _is_renewed(belief, danger_at) and not belief.danger and t > danger_at:
            raise self.broken(f"{belief} is in danger, and nobody was told")


def _is_renewed(belief: Belief, at: int) -> bool:
    """Whether a lease was still to be renewed then: at the end of its `max_hold` it runs out
    as it was asked to, which is no danger."""
    hold = belief.hold
    if not hold.care.keep or hold.care.max_hold is None:
        return hold.care.keep
    return at < belief.client.clock.reaches(hold.acquired + hold.care.max_hold)
