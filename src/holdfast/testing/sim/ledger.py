"""What really happens, as only the simulator can know it, told to the checkers.

A *belief* is a lease as one party has it: it believes to hold until its own deadline. Two
parties of a shared lease have a belief each, with one token. What a checker may demand of
a belief depends on what was done to it, and the ledger keeps that as narrowly as it can:

 1. *Revoked*: another party freed, handed on or evicted this grant. That party's word ends
    it in the store at once, and its believer learns it at its next beat. In between,
    exclusion by belief is not promised; the fence is. It starts when the write lands
    (which may be before the believer has heard of its grant), and it concerns those
    believers only who did not ask for it.
 2. *Shaken*: a failover took back a write of this token.

A *ghost* is a token of which a write landed after its sender had given up on it, or which a
failover brought back: it may stand in the record although its sender rightly says that it
has nothing. Its ttl ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.holds import Hold
from holdfast.core.records import EMPTY, Holder, Record, Waiter
from holdfast.testing.sim.checker import HOOKS, Checker

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient
    from holdfast.testing.sim.ops import Op
    from holdfast.testing.sim.world import World


# A result that callers of `once` want: its key, and which of many.
Goal = tuple[str, int]


class Belief:
    """A lease as one party has it."""

    __slots__ = ("client", "danger", "hold", "lapsed", "op", "revoked", "since", "told_lost")

    def __init__(self, client: SimClient, hold: Hold, op: Op, since: int) -> None:
        self.client = client
        self.hold = hold
        self.op = op  # what got it
        self.since = since
        self.revoked = False
        self.lapsed = False  # somebody looked, and it was not valid
        self.danger = False
        self.told_lost = False

    def valid(self, t: int) -> bool:
        """Whether its party believes, at true time `t`, to hold."""
        hold = self.hold
        return (
            hold.state == "held"
            and not self.client.dead
            and self.client.clock.at(t) < hold.deadline
        )

    def __str__(self) -> str:
        return f"{self.client.name}'s {self.hold.holder.mode} lease on {self.hold.key}"


class Landing:
    """A write at the moment at which it is carried out."""

    __slots__ = ("after", "again", "before", "deleted", "joined", "key", "late", "left", "op", "t")

    def __init__(
        self,
        key: str,
        before: Record,
        record: Record | None,
        op: Op,
        t: int,
        late: bool,
        again: bool,
    ) -> None:
        self.key = key
        self.before = before
        self.after = EMPTY if record is None else record
        self.deleted = record is None
        self.op = op
        self.t = t
        self.late = late
        self.again = again  # of a request that was delivered before
        old = {holder.token for holder in before.holders}
        new = {holder.token for holder in self.after.holders}
        self.left: list[Holder] = [h for h in before.holders if h.token not in new]
        self.joined: list[Holder] = [h for h in self.after.holders if h.token not in old]


class Ledger:
    """Keeps the beliefs, and passes on to the checkers what happens."""

    def __init__(self, world: World, checkers: list[Checker]) -> None:
        self.world = world
        self.checkers = checkers
        self.beliefs: dict[str, list[Belief]] = {}
        self.shaken: set[str] = set()
        self.ghosts: set[str] = set()
        self._ended_by: dict[str, Op] = {}  # grants that somebody's word has ended
        self.landed_at: dict[tuple[str, str], int] = {}  # by token and beat
        for checker in checkers:
            checker.world = world
        self._hooks = {
            name: [
                getattr(checker, name)
                for checker in checkers
                if getattr(type(checker), name) is not getattr(Checker, name)
            ]
            for name in HOOKS
        }

    def on(self, key: str) -> list[Belief]:
        """The beliefs about a key that have not been ended."""
        return self.beliefs.get(key, [])

    def excused(self, belief: Belief) -> bool:
        """Whether exclusion is not promised to this belief any more."""
        return belief.revoked or belief.hold.token in self.shaken

    # --- told by the clients ------------------------------------------------------------------

    def begun(self, belief: Belief) -> None:
        """A party was given a lease."""
        self.beliefs.setdefault(belief.hold.key, []).append(belief)
        ended_by = self._ended_by.get(belief.hold.token, belief.op)
        belief.revoked = ended_by is not belief.op
        for hook in self._hooks["begun"]:
            hook(belief)

    def extended(self, belief: Belief) -> None:
        """A renewal went through, as its party sees it."""
        for hook in self._hooks["extended"]:
            hook(belief)

    def looked(self, belief: Belief, valid: bool) -> None:
        """A party looked whether it still holds."""
        for hook in self._hooks["looked"]:
            hook(belief, valid)
        if not valid:
            belief.lapsed = True

    def wrote(self, belief: Belief) -> None:
        """A write of a party's arrives where it was sent."""
        for hook in self._hooks["wrote"]:
            hook(belief)

    def ended(self, belief: Belief, how: str) -> None:
        """A belief is over: `released`, `handed over`, `lost` or `dropped`."""
        beliefs = self.beliefs[belief.hold.key]
        if belief in beliefs:
            beliefs.remove(belief)
        for hook in self._hooks["ended"]:
            hook(belief, how)

    def gone(self, client: SimClient) -> None:
        """A client crashed: it believes nothing any more."""
        for key, beliefs in self.beliefs.items():
            self.beliefs[key] = [belief for belief in beliefs if belief.client is not client]

    def op_done(self, op: Op) -> None:
        """An operation came back to its caller, with a lease, an error or an interrupt."""
        for hook in self._hooks["op_done"]:
            hook(op)

    def came_back(self, op: Op, began: int, by: int) -> None:
        """A call that was to be back `by` then, on its client's clock, is back."""
        for hook in self._hooks["came_back"]:
            hook(op, began, by)

    def making(self, belief: Belief, goal: Goal) -> None:
        """A caller of `once` begins to make a result."""
        for hook in self._hooks["making"]:
            hook(belief, goal)

    def publishing(self, belief: Belief, goal: Goal) -> None:
        """A caller of `once` publishes a result."""
        for hook in self._hooks["publishing"]:
            hook(belief, goal)

    def acting(self, belief: Belief) -> None:
        """The work of a leader acts."""
        for hook in self._hooks["acting"]:
            hook(belief)

    def finished(self) -> None:
        """The world has come to its end."""
        for hook in self._hooks["finished"]:
            hook()

    # --- told by the store --------------------------------------------------------------------

    def landed(
        self, key: str, before: Record, record: Record | None, op: Op, *, late: bool, again: bool
    ) -> None:
        """A write was carried out."""
        t = self.world.t
        landing = Landing(key, before, record, op, t, late, again)
        parties: tuple[Holder | Waiter, ...] = (*landing.after.holders, *landing.after.queue)
        for party in parties:
            self.landed_at.setdefault((party.token, party.beat), t)
        if late:
            self.ghosts.update(op.tokens)
        for holder in landing.left:
            self._revoke(key, holder.token, op)
        if self.world.log is not None:
            self.world.note_landing(landing)
        for hook in self._hooks["landed"]:
            hook(landing)

    def rolled_back(self, lost: Record, restored: Record) -> None:
        """A failover took writes back: who was let go may be there again."""
        self.ghosts.update(holder.token for holder in restored.holders)
        self.ghosts.update(waiter.token for waiter in restored.queue)
        kept = {(holder.token, holder.beat) for holder in restored.holders}
        for holder in lost.holders:
            if (holder.token, holder.beat) not in kept:
                self.shaken.add(holder.token)

    def _revoke(self, key: str, token: str, op: Op) -> None:
        if op.kind != "evict" and token not in op.tokens:
            return
        self._ended_by[token] = op
        for belief in self.on(key):
            if belief.hold.token == token and belief.op is not op and not op.ends(belief):
                belief.revoked = True
