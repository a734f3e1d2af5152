"""Whoever says "surely not done" is right.

When a call ends with `Unavailable` or `Misconfigured`, it has brought nobody in and thrown nobody
out: what the store may have done for it is told as `OutcomeUnknown`. (A call for several keys may
have got some of them; it gives them back. What somebody else has ended meanwhile, or what has run
out, does not count. Nor does what a claim gives back: it is its own, also if the release of
somebody else has granted it. And a write that something below us delivers once more is nobody's to
know.)
"""

from __future__ import annotations

from holdfast.errors import Misconfigured, Unavailable
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Landing
from holdfast.testing.sim.ops import Op

_CHECKED = ("hold", "take", "evict")


class Certainty(Checker):
    """Remembers what each operation has done in the store until it comes back."""

    rule = "surely-not-done"

    def __init__(self) -> None:
        # The tokens that stand in the store, by whom, and until when.
        self._brought: dict[str, tuple[Op, int]] = {}
        self._removed: dict[Op, set[str]] = {}

    def landed(self, landing: Landing) -> None:
        op = landing.op
        cleans_up = op.outcome is not None
        # A copy comes at any time, also long after a later request of the call has been answered:
        # a claim that took a place in the queue then gets the lock, and nobody asked for it.
        counts = not cleans_up and not landing.again
        for holder in landing.left:
            by, _ = self._brought.get(holder.token, (None, 0))
            if by is op and cleans_up:
                continue  # too late: it has said by now that there is nothing
            self._brought.pop(holder.token, None)
            ended = op.kind == "evict" or (op.kind == "take" and holder.token in op.tokens)
            if ended and by is not op and counts:
                self._removed.setdefault(op, set()).add(holder.token)
        for holder in landing.joined:
            if holder.token in op.tokens and counts:
                self._brought[holder.token] = op, landing.t + holder.ttl

    def op_done(self, op: Op) -> None:
        brought = {
            token for token, (by, until) in self._brought.items() if by is op and op.back_at < until
        }
        removed = self._removed.pop(op, set())
        says_not_done = isinstance(op.outcome, (Unavailable, Misconfigured))
        if op.kind not in _CHECKED or not self.world.plan.kind.compares or not says_not_done:
            return
        if brought or removed:
            raise self.broken(f"{op} says {op.outcome!r}, but brought in {brought}, out {removed}")
