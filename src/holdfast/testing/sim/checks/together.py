"""acquire_all is all or none: a call that fails leaves nothing held, and one that succeeds
has everything at the moment at which it returns."""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ops import Op


class Together(Checker):
    """Looks at each acquire_all when it comes back."""

    rule = "all-or-none"

    def op_done(self, op: Op) -> None:
        if op.kind != "all":
            return
        keys = sorted(belief.hold.key for belief in op.got)
        if op.outcome is None and keys != sorted(attempt.key for attempt in op.attempts):
            raise self.broken(f"{op} returned, and holds only {keys}")
        if op.outcome is not None:
            held = [b.hold.key for b in op.got if b.valid(self.world.t)]
            if held:
                raise self.broken(f"{op} failed, and still holds {held}")
