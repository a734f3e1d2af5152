"""Rule 5: fences only grow, per key, whatever happens to the record.

On a store that compares versions: every grant that lands has a larger fence than anything
that landed before on its key, also before a deletion or a failover; an eviction raises it.
Only an offered grant keeps its number until somebody takes it. A grant that is passed on inside
of a client has another number each time, which nobody else was given, and not a larger one than
its record had: so whatever comes later is larger.

On a store where the last writer wins there is no order of writes to go by. What is left:
a lease that was asked for clearly later than another was given has the larger fence.
"""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief, Landing


class Fences(Checker):
    """Remembers the largest fence of each key."""

    rule = "fences-grow"

    def __init__(self) -> None:
        self._largest: dict[str, int] = {}
        self._given: dict[str, list[tuple[int, int]]] = {}  # when, and which
        self._leases: dict[str, dict[int, str]] = {}  # the token of each fence that was given
        self._reserved: dict[str, int] = {}  # by token: the record's fence when it landed

    def landed(self, landing: Landing) -> None:
        if not self.world.plan.kind.compares or landing.deleted:
            return
        key, after = landing.key, landing.after
        largest = self._largest.get(key, 0)
        before = {(holder.token, holder.acquired_at) for holder in landing.before.holders}
        for holder in after.holders:
            if (holder.token, holder.acquired_at) not in before:
                self._reserved[holder.token] = after.fence
        for holder in landing.joined:
            if not holder.offered and holder.fence <= largest:
                raise self.broken(f"a grant on {key} got {holder.fence}, after {largest}")
            if holder.offered and holder.fence not in {h.fence for h in landing.left}:
                raise self.broken(f"an offered grant on {key} changed its fence")
        if landing.op.kind == "evict" and landing.left and after.fence <= largest:
            raise self.broken(f"an eviction on {key} left the fence at {after.fence}")
        if after.fence < landing.before.fence:
            raise self.broken(f"the record of {key} fell from {landing.before.fence}")
        for holder in after.holders:
            if holder.fence > after.fence:
                raise self.broken(f"a grant on {key} is above its record's fence")
        self._largest[key] = max(largest, after.fence)

    def begun(self, belief: Belief) -> None:
        hold = belief.hold
        if belief.op.kind == "join":
            return
        if self.world.plan.kind.compares:
            self._check_own_number(belief)
            return
        given = self._given.setdefault(hold.key, [])
        clearly_before = belief.op.started - self.world.plan.clock_lag
        for when, fence in given:
            if when < clearly_before and fence >= hold.fence:
                raise self.broken(f"{belief} got {hold.fence}, long after {fence} was given")
        given.append((self.world.t, hold.fence))

    def _check_own_number(self, belief: Belief) -> None:
        hold = belief.hold
        leases = self._leases.setdefault(hold.key, {})
        if hold.fence in leases:
            raise self.broken(f"{belief} got {hold.fence}, which another lease has had")
        leases[hold.fence] = hold.token
        last = self._reserved.get(hold.token)
        if last is not None and hold.fence > last:
            raise self.broken(f"{belief} got {hold.fence}, and its record allows {last}")
