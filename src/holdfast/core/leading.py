"""Leading: of many candidates one leads, and another one follows when it is gone. Pure; the faces
and the simulator run it.

 1. A candidate campaigns for as long as it takes. A store that cannot be reached is no reason to
    give up, however long that lasts.
 2. A term lasts until `run` has returned. The next campaign begins after that and never before, so
    `run` is never running twice in one process.
 3. `run` is told to end when the lease is lost, when the leader resigns and when it is stopped. In
    the last two cases the lease is kept alive until `run` has returned, and given back then: the
    next leader waits for no ttl, and never meets the one before.
 4. After a loss and after a resignation the candidate campaigns again. It is over when `run`
    returns by itself or raises, and when the candidate is stopped.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from holdfast.core.caller_effects import CAMPAIGN, Campaign, Ending, Lead, Resign
from holdfast.core.effects import Effect, Sleep
from holdfast.core.records import SECOND, Micros
from holdfast.errors import OutcomeUnknown, StoreReadOnly, Unavailable

R = TypeVar("R")

FIRST_PAUSE: Micros = SECOND // 10
LONGEST_PAUSE: Micros = 2 * SECOND


LeadEffect: TypeAlias = Campaign | Lead | Resign | Effect
LeadSteps: TypeAlias = Generator[LeadEffect, Any, R]


def lead_steps() -> LeadSteps[Ending]:
    """Campaign and lead until it is over. Returns how the last term ended; `stopped` if it was
    stopped as a candidate. Whoever runs this gives back a lease that an exception leaves behind."""
    while True:
        lease = yield from _campaign_steps()
        if lease is None:
            return "stopped"
        ending = yield from Lead(lease)
        yield from Resign(lease)
        if ending in ("returned", "stopped"):
            return ending


def _campaign_steps() -> LeadSteps[Any]:
    """Campaign until there is a lease, or until the candidate is stopped."""
    pause = FIRST_PAUSE
    while True:
        try:
            return (yield from CAMPAIGN)
        except (Unavailable, OutcomeUnknown, StoreReadOnly):
            # A server that is being replaced may only be read for a while.
            yield from Sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
