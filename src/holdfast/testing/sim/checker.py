"""The base of checkers: each is told what happens, and raises `Violation` if its rule is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.testing.sim.ledger import Belief, Goal, Landing
    from holdfast.testing.sim.ops import Op
    from holdfast.testing.sim.world import World

HOOKS: Final = (
    *("begun", "extended", "looked", "wrote", "ended", "op_done", "came_back", "landed"),
    "finished",
    *("making", "publishing", "acting"),
)


class Violation(Exception):
    """A rule was broken."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        """A search in several processes sends it home: pickled by what it was made of."""
        return Violation, (self.rule, self.what)


class Checker:
    """Checks one rule. It overrides the methods for the events that it needs."""

    rule: str
    world: World

    def broken(self, what: str) -> Violation:
        """Returns the exception to raise."""
        return Violation(self.rule, what)

    def begun(self, belief: Belief) -> None:
        """A party was given a lease."""

    def extended(self, belief: Belief) -> None:
        """A renewal went through, as its party sees it."""

    def looked(self, belief: Belief, valid: bool) -> None:
        """A party looked whether it still holds."""

    def wrote(self, belief: Belief) -> None:
        """What a party wrote after it had looked arrives where it was sent."""

    def ended(self, belief: Belief, how: str) -> None:
        """A belief is over."""

    def op_done(self, op: Op) -> None:
        """An operation came back to its caller."""

    def came_back(self, op: Op, began: int, by: int) -> None:
        """A call that was to be back `by` then, on its client's clock, is back."""

    def landed(self, landing: Landing) -> None:
        """A write was carried out by the store."""

    def making(self, belief: Belief, goal: Goal) -> None:
        """A caller of `once` begins to make a result."""

    def publishing(self, belief: Belief, goal: Goal) -> None:
        """A caller of `once` publishes a result."""

    def acting(self, belief: Belief) -> None:
        """The work of a leader acts."""

    def finished(self) -> None:
        """The world has come to its end."""
