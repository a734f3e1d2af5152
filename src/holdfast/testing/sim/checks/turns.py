"""Callers of one client that share a hold: in the order in which they came, and not for ever.

Nobody is given a turn past somebody of the same cohort who came before and still waits. A hold is
passed on for a quarter of a second after its grant, and for a fiftieth if the last answer showed
that others wait at the store: so others wait for a bounded time more.
"""

from __future__ import annotations

from holdfast.core.records import Micros
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.ledger import Belief

LONGEST: Micros = 250_000
LONGEST_WANTED: Micros = 20_000
# A clock may be faster, and a lease is looked at when its caller has woken up.
SLACK: Micros = 2_500


class Turns(Checker):
    """Looks at each lease of a cohort."""

    rule = "turns"

    def __init__(self) -> None:
        self._granted: dict[str, tuple[Micros, bool]] = {}  # by token: when, and whether wanted

    def extended(self, belief: Belief) -> None:
        token = belief.hold.token
        if token in self._granted:
            self._granted[token] = self._granted[token][0], belief.hold.contended

    def begun(self, belief: Belief) -> None:
        hold, world = belief.hold, self.world
        if hold.member is None:
            return
        cohort = hold.member.cohort
        for other in () if cohort is None else cohort.line:
            if other.place < hold.member.place and other.work() is not None:
                raise self.broken(f"{belief} was given a turn past somebody who came before")
        if not belief.op.passed_on:
            self._granted[hold.token] = world.t, hold.contended
            return
        granted, wanted = self._granted[hold.token]
        since = belief.client.clock.reaches(hold.acquired) - granted
        if since > (LONGEST_WANTED if wanted else LONGEST) + SLACK:
            raise self.broken(f"{belief} was passed on {since} µs after its grant")
