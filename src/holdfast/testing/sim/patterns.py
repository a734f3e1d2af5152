"""Callers of `once` and `lead`: the core's own loops, with the simulator's calls below them.

What a maker publishes is kept in the world, by its goal: a key, and which of many results for it.
A look takes a moment, and what it shows is as old as its beginning. A leader's work acts now and
then, as long as it was not told to end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.caller_effects import (
    Campaign,
    Ending,
    Find,
    Lead,
    Make,
    Resign,
    TryAcquire,
    WaitUntilFree,
)
from holdfast.core.effects import Emit, Now, Sleep
from holdfast.core.leading import lead_steps
from holdfast.core.once import once_steps
from holdfast.core.records import SECOND, Micros
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.core.waiting import BoundedWait
from holdfast.errors import Busy, HoldfastError, LeaseLost
from holdfast.testing.sim import calls
from holdfast.testing.sim.checker import Violation
from holdfast.testing.sim.ledger import Belief, Goal
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import Interrupted, R, Script, run

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient

Handlers = dict[type, Callable[[Any], Script[Any]]]
PATIENCE: Micros = 10 * SECOND


def answered(loop: Generator[Any, Any, R], handlers: Handlers) -> Script[R]:
    """Run a loop of the core's with these answers, as `holdfast.runtime.run` does."""
    try:
        asked = loop.send(None)
        while True:
            try:
                answer = yield from handlers[type(asked)](asked)
            except HoldfastError as trouble:
                asked = loop.throw(trouble)
            else:
                asked = loop.send(answer)
    except StopIteration as done:
        returned: R = done.value
        return returned
    except BaseException:
        loop.close()
        raise


class _Caller:
    """What both have in common: a key, and a lease that is released in the end."""

    def __init__(self, client: SimClient, op: Op) -> None:
        plan = client.world.plan
        self.client = client
        self.op = op
        self.key = plan.keys[int(op.rng.random() * len(plan.keys))]
        self.ttl = op.rng.choice(plan.ttls)
        self.belief: Belief | None = None

    def play(
        self, loop: Generator[Any, Any, Any], handlers: Handlers
    ) -> Script[BaseException | None]:
        """Run the loop, and give back what it leaves behind, as the faces do. Returns what it
        raised."""
        raised: BaseException | None = None
        try:
            yield from answered(loop, handlers)
        except (HoldfastError, Interrupted) as trouble:
            raised = trouble
        belief, self.belief = self.belief, None
        if belief is not None:
            yield from calls.release(self.client, self.op, belief)
        return raised

    def begin_call(self, timeout: Micros | None) -> None:
        """From here on the checkers see a call of its own."""
        op = self.op
        op.started, op.requests, op.timeout, op.outcome = self.client.world.t, 0, timeout, None
        op.attempts, op.got, op.cleaned, op.ending = [], [], True, None

    def acquire(self, timeout: Micros | None, fair: bool | None) -> Script[Belief]:
        """A call of `acquire`: the lease, or what it raises."""
        self.begin_call(timeout)
        client, op = self.client, self.op
        attempt = calls.claim(op, self.key, self.ttl, "exclusive", None)
        terms = Terms(timeout, fair, PATIENCE)
        steps = acquire_steps(client.observations, attempt, terms, client.now())
        self.belief = yield from calls.enter(client, op, attempt, steps)
        if self.belief is None:
            assert op.outcome is not None
            raise op.outcome
        return self.belief

    def pass_on(self, asked: Now | Emit | Sleep) -> Script[Any]:
        """The simulator answers this itself."""
        return (yield from asked)

    def moment(self, longest: Micros) -> Script[None]:
        """Let a while pass; a short one once the world is to come to its end."""
        healing = self.client.world.healing
        yield from Sleep(1000 if healing else int(self.op.rng.random() * longest))


class Once(_Caller):
    """One call of `once`."""

    def __init__(self, client: SimClient, op: Op) -> None:
        super().__init__(client, op)
        world = client.world
        self.goal: Goal = (self.key, world.t // (4 * world.plan.longest_ttl))

    def script(self) -> Script[None]:
        """Look, try, wait, make."""
        handlers: Handlers = {
            Find: self._find,
            TryAcquire: self._try_acquire,
            WaitUntilFree: self._wait_until_free,
            Make: self._make,
            **dict.fromkeys((Now, Emit, Sleep), self.pass_on),
        }
        yield from self.play(once_steps(self._wait()), handlers)

    def _wait(self) -> BoundedWait:
        return BoundedWait(self.key, self.client.name, None, PATIENCE, self.client.now())

    def _find(self, asked: Find) -> Script[Any]:
        found = self.client.world.published.get(self.goal)
        yield from self.moment(self.ttl // 20)
        return found

    def _try_acquire(self, asked: TryAcquire) -> Script[Belief | None]:
        try:
            return (yield from self.acquire(0, None))
        except Busy:
            return None

    def _wait_until_free(self, asked: WaitUntilFree) -> Script[None]:
        self.begin_call(None)
        yield from run(wait_until_free_steps(self.client.observations, self._wait()))

    def _make(self, asked: Make) -> Script[None]:
        """Work for a while, and publish if the lease is still valid."""
        world, belief = self.client.world, asked.lease
        world.ledger.making(belief, self.goal)
        yield from self.moment(self.ttl)
        world.look(belief)
        if not belief.hold.valid(self.client.now()):
            raise LeaseLost
        world.note(self.client, "publishes", self.goal)
        world.ledger.publishing(belief, self.goal)
        world.published[self.goal] = world.t


class Candidate(_Caller):
    """One candidate for leadership, for a few terms."""

    def __init__(self, client: SimClient, op: Op) -> None:
        super().__init__(client, op)
        self._terms = 1 + int(op.rng.random() * 3)

    def script(self) -> Script[None]:
        """Campaign, lead, resign."""
        handlers: Handlers = {
            Campaign: self._campaign,
            Lead: self._lead,
            Resign: self._resign,
            Sleep: self.pass_on,
        }
        raised = yield from self.play(lead_steps(), handlers)
        if isinstance(raised, HoldfastError):
            raise Violation("no-candidate-gives-up", f"{self.op} ended with {raised!r}")

    def _campaign(self, asked: Campaign) -> Script[Belief | None]:
        if self._terms == 0 or self.client.world.healing:
            return None
        self._terms -= 1
        return (yield from self.acquire(None, True))

    def _lead(self, asked: Lead) -> Script[Ending]:
        belief: Belief = asked.lease
        for _ in range(1 + int(self.op.rng.random() * 6)):
            if must_end(belief):
                return "lost"
            self.client.world.ledger.acting(belief)
            yield from self.moment(self.ttl)
        return "resigned"

    def _resign(self, asked: Resign) -> Script[None]:
        self.belief = None
        yield from calls.release(self.client, self.op, asked.lease)


def must_end(belief: Belief) -> bool:
    """What the work of a leader asks before it acts: `lease.check()`."""
    return not belief.hold.valid(belief.client.now())
