"""What `once` and `lead` promise, whatever happens to the leases below.

`one-result`: nobody begins to make what was published before its lease was granted, and nothing is
published twice by makers who rightly believed to hold. `one-leader`: the work of an earlier leader
does not act after that of a later one has. Not promised to a belief that was revoked or shaken (see
`ledger`), nor on a store that does not compare versions.
"""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief, Goal


class OneResult(Checker):
    """Looks at every maker when it begins and when it publishes."""

    rule = "one-result"

    def __init__(self) -> None:
        self._published: dict[Goal, Belief] = {}

    def making(self, belief: Belief, goal: Goal) -> None:
        published_at = self.world.published.get(goal)
        if published_at is not None and published_at < belief.since:
            raise self.broken(f"{belief} makes {goal}, which was there before its grant")

    def publishing(self, belief: Belief, goal: Goal) -> None:
        before = self._published.get(goal)
        self._published[goal] = belief
        if before is None or not self.world.plan.kind.compares:
            return
        excused = self.world.ledger.excused
        if not excused(before) and not excused(belief):
            raise self.broken(f"{belief} publishes {goal}, which {before} has published")


class OneLeader(Checker):
    """Looks at the fences of those who act."""

    rule = "one-leader"

    def __init__(self) -> None:
        self._newest: dict[str, Belief] = {}

    def acting(self, belief: Belief) -> None:
        key = belief.hold.key
        newest = self._newest.setdefault(key, belief)
        if belief.hold.fence >= newest.hold.fence:
            self._newest[key] = belief
            return
        excused = self.world.ledger.excused
        if self.world.plan.kind.compares and not excused(belief) and not excused(newest):
            raise self.broken(f"{belief} acts after {newest} has")
