"""Where nothing goes wrong, a lock does not lie idle while somebody in its queue may have it.

Whatever ends a party's hold or place wakes those whom that lets in, and they come at once: a
few trips later, not at their next look. Only checked in a world without faults and on a store
that tells of changes, because a message may get lost and nothing but time then helps.
"""

from __future__ import annotations

from holdfast.core import rules
from holdfast.core.records import Micros
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.checks.tokens import run_out
from holdfast.testing.sim.ledger import Landing

TRIPS = 6
# For a timer that aims a little later than the moment at which somebody runs out.
SLACK: Micros = 20_000


class Idle(Checker):
    """Remembers since when somebody could have come."""

    rule = "no-idle-lock"

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, str]] = {}  # by key, and who is the first

    def landed(self, landing: Landing) -> None:
        world, key = self.world, landing.key
        plan = world.plan
        if plan.faults or not plan.kind.push or not plan.kind.compares:
            return
        since, first = self._since.pop(key, (landing.t, ""))
        idle = landing.t - since
        if idle > TRIPS * (plan.latency + plan.jitter) + SLACK:
            raise self.broken(f"{key} lay idle for {idle} µs, found by {landing.op}")
        up = self._first_up(landing)
        if up:
            self._since[key] = (since, first) if up == first else (landing.t, up)

    def _first_up(self, landing: Landing) -> str:
        """The first in the queue who lives and may have the lock."""
        world, landed_at = self.world, self.world.ledger.landed_at
        queue = [
            waiter
            for waiter in landing.after.queue
            if not run_out(waiter, world.store, landed_at, landing.t)
        ]
        fits = queue and rules.fits_beside(queue[0], landing.after.holders)
        return queue[0].token if fits else ""
