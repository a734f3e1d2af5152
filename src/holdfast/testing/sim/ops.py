"""One thing that somebody does, with a source of chance of its own."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from holdfast.core.holds import Attempt, Hold
from holdfast.core.steps import TOKEN_BYTES

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient
    from holdfast.testing.sim.ledger import Belief


class Op:
    """An operation under way, as the checkers know it."""

    __slots__ = (
        "attempts", "back_at", "cancel_in", "cleaned", "client", "ending", "evicted", "got",
        "interruptible", "kind", "label", "outcome", "passed_on", "requests", "rng", "seen_free",
        "started", "timeout", "tokens",
    )  # fmt: skip

    def __init__(self, client: SimClient, label: str, kind: str, rng: Random, t: int) -> None:
        self.client = client
        self.label = label
        self.kind = kind
        self.rng = rng
        self.started = t
        self.requests = 0
        self.timeout: int | None = None  # how long its caller is ready to wait
        self.back_at = t  # when it came back, before it cleaned up
        self.tokens: set[str] = set()  # what it may write about
        self.attempts: list[Attempt] = []
        self.ending: Hold | None = None  # the hold that it gives up
        self.got: list[Belief] = []
        self.evicted: set[int] = set()  # the fences of those whom it was told to have thrown out
        self.seen_free: tuple[str, ...] = ()  # keys of which it was told that nobody holds them
        self.outcome: BaseException | None = None
        self.passed_on = False  # it got what another caller of its client had
        self.cleaned = True  # False: it could not take back what it had left
        self.cancel_in = 0  # after how many effects it is interrupted; 0: it is not
        self.interruptible = True

    def __str__(self) -> str:
        return f"{self.label} ({self.kind})"

    def draw(self, size: int) -> str:
        """Bytes that look random, as hex. Whoever draws a token may write about it."""
        drawn = f"{self.rng.getrandbits(8 * size):0{2 * size}x}"
        if size == TOKEN_BYTES:
            self.tokens.add(drawn)
        return drawn

    def ends(self, belief: Belief) -> bool:
        """Whether it is by this operation that its own party gives a belief up."""
        return self.ending is belief.hold
