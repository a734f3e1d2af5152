"""Rule 1: at no instant do two parties both hold what only one can have.

By true time, and by what each party believes: it holds until its own clock has reached its
own deadline. A belief that overlaps another must have begun while the other was valid, so
it is enough to look whenever one begins.

Not promised to a belief that was revoked or shaken (see `ledger`), and on a store that
does not compare versions to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.holds import Hold
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief


def fit_together(holds: Sequence[Hold]) -> bool:
    """Whether all of these may be held at once. Parties of one lease count once: they have its
    token and its fence. A grant that was passed on is another lease, with a fence of its own."""
    leases = {(hold.token, hold.fence): hold for hold in holds}
    if len(leases) <= 1:
        return True
    modes = {hold.holder.mode for hold in leases.values()}
    if modes == {"shared"}:
        return True
    if modes != {"counted"}:
        return False
    return all(
        hold.holder.limit is not None and len(leases) <= hold.holder.limit
        for hold in leases.values()
    )


class Overlap(Checker):
    """Looks for overlapping leases."""

    rule = "one-holder"

    def begun(self, belief: Belief) -> None:
        self._check(belief)

    def looked(self, belief: Belief, valid: bool) -> None:
        if valid:
            self._check(belief)

    def _check(self, belief: Belief) -> None:
        world, ledger = self.world, self.world.ledger
        others = ledger.on(belief.hold.key)
        if len(others) < 2 or not world.plan.kind.compares:
            return
        valid = [b for b in others if b.valid(world.t) and not ledger.excused(b)]
        if not fit_together([b.hold for b in valid]):
            who = ", ".join(f"{b} (fence {b.hold.fence})" for b in valid)
            raise self.broken(f"all of these are valid at once: {who}")
