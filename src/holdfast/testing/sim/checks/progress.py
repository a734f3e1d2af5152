"""Rule 8: when faults stop, everybody who waits gets their turn within a bound.

The bound, for P operations under way: what a dead party can still hold up (the longest
delay of a request that is on its way, then a ttl, as the slowest clock counts it, and the
doubt of the store's clock, twice), what a client may sleep after trouble before it tries
again or a thread stands still, and a turn for each: its hold, its release, and the pause of
a waiter who only polls.
"""

from __future__ import annotations

from holdfast.core.acquiring import LOOK_AGAIN_UNQUEUED
from holdfast.core.records import SECOND, Micros
from holdfast.core.steps import LONGEST_PAUSE
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.plan import Plan


def wait_for_the_dead(plan: Plan) -> Micros:
    """For how long somebody who is gone can be in the way."""
    return plan.longest_delay + plan.longest_ttl * 102 // 100 + 2 * plan.kind.doubt + SECOND


def bound(plan: Plan, under_way: int) -> Micros:
    """Within what time everything must be over."""
    turn = plan.longest_ttl + LOOK_AGAIN_UNQUEUED + 10 * (plan.latency + plan.jitter)
    trouble = plan.request_timeout + LONGEST_PAUSE + plan.longest_stall
    return wait_for_the_dead(plan) + trouble + (under_way + 1) * turn


class Progress(Checker):
    """Lets the healed world go on until everybody is done."""

    rule = "progress"

    def finished(self) -> None:
        world = self.world
        within = bound(world.plan, world.busy)
        ends_at = max(world.t, world.store.down_until) + within
        world.run_while(lambda: world.busy > 0 and world.t <= ends_at)
        if world.busy:
            waiting = sorted(str(p.op) for client in world.clients for p in client.processes)
            raise self.broken(f"not done {within} µs after everything was healed: {waiting}")
