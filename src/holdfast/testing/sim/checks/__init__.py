"""The checkers, one per rule."""

from __future__ import annotations

from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.checks.certainty import Certainty
from holdfast.testing.sim.checks.deadlines import Deadlines
from holdfast.testing.sim.checks.evicting import Evicting
from holdfast.testing.sim.checks.fences import Fences
from holdfast.testing.sim.checks.idle import Idle
from holdfast.testing.sim.checks.keeping import Keeping
from holdfast.testing.sim.checks.late_writes import LateWrites
from holdfast.testing.sim.checks.leaks import Leaks
from holdfast.testing.sim.checks.loss import LossIsTold, LostStaysLost
from holdfast.testing.sim.checks.overlap import Overlap
from holdfast.testing.sim.checks.patterns import OneLeader, OneResult
from holdfast.testing.sim.checks.progress import Progress
from holdfast.testing.sim.checks.promises import Promises
from holdfast.testing.sim.checks.queue import Queue
from holdfast.testing.sim.checks.requests import RequestsAndTimeouts
from holdfast.testing.sim.checks.resource import Resource
from holdfast.testing.sim.checks.together import Together
from holdfast.testing.sim.checks.tokens import OnlyTheToken
from holdfast.testing.sim.checks.turns import Turns
from holdfast.testing.sim.checks.watching import Watching

CHECKERS: tuple[type[Checker], ...] = (
    Overlap,
    Deadlines,
    LostStaysLost,
    LossIsTold,
    Fences,
    OnlyTheToken,
    Evicting,
    Certainty,
    Together,
    Queue,
    Idle,
    Keeping,
    Resource,
    LateWrites,
    Watching,
    Turns,
    OneResult,
    OneLeader,
    RequestsAndTimeouts,
    Promises,
    Progress,  # the last two carry the world on to its end
    Leaks,
)


def all_checkers() -> list[Checker]:
    """One of each, for one run."""
    return [checker() for checker in CHECKERS]
