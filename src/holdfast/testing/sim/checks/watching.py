"""Who waits until a lock is free, or lists locks, is not told that one is free while it is held
all the time.

Somebody who held before the look began, and still does when it ends, was there whenever the
watcher looked. Not promised beside a belief that was revoked or shaken (see `ledger`), nor
on a store that does not compare versions.
"""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ops import Op


class Watching(Checker):
    """Looks at who holds whenever somebody was told that nobody does."""

    rule = "free-was-free"

    def op_done(self, op: Op) -> None:
        world, ledger = self.world, self.world.ledger
        if not world.plan.kind.compares:
            return
        for key in op.seen_free:
            for belief in ledger.on(key):
                throughout = belief.since <= op.started and belief.valid(world.t)
                if throughout and not ledger.excused(belief):
                    raise self.broken(f"{op} was told that {key} is free beside {belief}")
