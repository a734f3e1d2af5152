"""Rule 6: only the token frees, renews or hands over. An operator can evict; time can end.

Whenever a write takes a holder out of a record, changes it or lets it in, it must be the
work of somebody who knows its token, or an eviction, or the holder must have run out: by
the store's clock, or by having been silent for its whole ttl.

And the other way round: nobody may say before the deadline that a lease was lost, while
the store still has it.
"""

from __future__ import annotations

from holdfast.core import rules
from holdfast.core.records import Holder, Waiter
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.clocks import FASTEST_PPM, PPM
from holdfast.testing.sim.ledger import Belief, Landing
from holdfast.testing.sim.stores import StoreModel


def run_out(
    party: Holder | Waiter, store: StoreModel, landed_at: dict[tuple[str, str], int], t: int
) -> bool:
    """Whether anybody could rightly find this party dead at true time `t`."""
    if party.expires_at and store.clock.at(t) > party.expires_at:
        return True
    if party.expires_at and store.kind.always_tells_time:
        return False
    silent = t - landed_at.get((party.token, party.beat), t)
    return silent >= party.ttl * PPM // FASTEST_PPM


class OnlyTheToken(Checker):
    """Compares each record with the one before."""

    rule = "only-the-token"

    def landed(self, landing: Landing) -> None:
        world, op = self.world, landing.op
        if not world.plan.kind.compares:
            return
        landed_at = world.ledger.landed_at
        for holder in landing.left:
            if holder.token in op.tokens or op.kind == "evict":
                self._not_ones_own(holder, landing)
                continue
            if not run_out(holder, world.store, landed_at, landing.t):
                raise self.broken(f"{op} took out {holder} on {landing.key}, which is alive")
        for holder in landing.after.holders:
            if holder.token not in op.tokens:
                before = rules.find(landing.before.holders, holder.token)
                if before != holder and not self._inherits(holder, landing):
                    raise self.broken(f"{op} changed {holder} on {landing.key}")

    def _inherits(self, holder: Holder, landing: Landing) -> bool:
        """Whether whoever gave up a grant of its own rightly gave the lock to this one: alone, and
        as the first in the queue had asked for it."""
        first = landing.before.queue[0] if landing.before.queue else None
        return (
            first is not None
            and (first.token, first.owner, first.mode, first.lease, first.beat)
            == (holder.token, holder.owner, "exclusive", holder.ttl, holder.beat)
            and len(landing.after.holders) == 1
            and any(one.token in landing.op.tokens for one in landing.left)
            and not rules.find(landing.after.queue, holder.token)
        )

    def _not_ones_own(self, holder: Holder, landing: Landing) -> None:
        """Nobody frees what the same operation still believes to hold, nor what it has passed
        on to another caller of its client."""
        op = landing.op
        for belief in self.world.ledger.on(landing.key):
            if belief.hold.token != holder.token or not belief.valid(landing.t):
                continue
            if belief.op is op and not op.ends(belief):
                raise self.broken(f"{op} freed {belief}, which it goes on to use")
            heir = belief.client is op.client and belief.op is not op and belief.op.passed_on
            if heir and op.kind == "hold":
                raise self.broken(f"{op} freed {belief}, to whom it was passed on")

    def ended(self, belief: Belief, how: str) -> None:
        world, hold = self.world, belief.hold
        if how != "lost" or not world.plan.kind.compares or world.ledger.excused(belief):
            return
        if belief.client.now() < hold.deadline and rules.find(
            world.store.record(hold.key).holders, hold.token
        ):
            raise self.broken(f"{belief} was given up as lost, and the store still has it")
