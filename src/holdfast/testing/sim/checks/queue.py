"""First come, first served: nobody is let in past somebody who waits in the queue.

Whenever a grant lands: it must fit beside the live waiters that stood before it in the
queue (all of them, if it was not in the queue itself) as it must fit beside the holders.
So a writer does not starve behind readers. A hand-over is no new grant.
"""

from __future__ import annotations

from holdfast.core.records import Holder, Waiter
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.checks.tokens import run_out
from holdfast.testing.sim.ledger import Landing


def may_pass(holder: Holder, ahead: list[Waiter]) -> bool:
    """Whether this grant and these waiters could all be let in together."""
    if not ahead:
        return True
    if holder.mode == "exclusive":
        return False
    return all(waiter.mode == holder.mode for waiter in ahead)


class Queue(Checker):
    """Looks at the queue whenever somebody is let in."""

    rule = "first-come-first-served"

    def landed(self, landing: Landing) -> None:
        if landing.op.kind == "take" or not self.world.plan.kind.compares:
            return
        for holder in landing.joined:
            if not holder.offered and not may_pass(holder, self._ahead(holder, landing)):
                raise self.broken(f"{landing.op} was let in past the queue of {landing.key}")

    def _ahead(self, holder: Holder, landing: Landing) -> list[Waiter]:
        world = self.world
        ahead = []
        for waiter in landing.before.queue:
            if waiter.token == holder.token:
                break
            if not run_out(waiter, world.store, world.ledger.landed_at, landing.t):
                ahead.append(waiter)
        return ahead
