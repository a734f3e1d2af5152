"""Every schedule of a small scope: two clients and a handful of effects.

Nothing is random here. Wherever more than one thing can happen next, there is a choice: a
request arrives, a reply comes back, a client gives up on a request (which may still arrive
later), a caller is interrupted, or time passes to the next timer. All sequences of choices
are tried, by running the world from the start for each (the steps are generators, and a
generator cannot be copied).

A scope bounds how many faults there are, how often time passes while a request is under
way, and how deep the choices go; beyond that things happen in their natural order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.core.contract import Inherited
from holdfast.core.effects import Load, Sleep, Wait
from holdfast.core.holds import Care
from holdfast.core.records import SECOND, Mode
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.testing.sim import timeline
from holdfast.testing.sim.calls import claim, enter, release
from holdfast.testing.sim.checker import Checker, Violation
from holdfast.testing.sim.checks.deadlines import Deadlines
from holdfast.testing.sim.checks.fences import Fences
from holdfast.testing.sim.checks.loss import LostStaysLost
from holdfast.testing.sim.checks.overlap import Overlap
from holdfast.testing.sim.checks.queue import Queue
from holdfast.testing.sim.checks.resource import Resource
from holdfast.testing.sim.checks.tokens import OnlyTheToken
from holdfast.testing.sim.client import SimClient
from holdfast.testing.sim.clocks import MAX_DRIFT_PPM, PPM, stream
from holdfast.testing.sim.network import Network
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.plan import Options, make_plan
from holdfast.testing.sim.process import Interrupted, Process, Script
from holdfast.testing.sim.world import World

TTL = SECOND
LONGEST_RUN = 400
_SAFETY: tuple[type[Checker], ...] = (
    *(Overlap, Deadlines, LostStaysLost, Fences, OnlyTheToken, Queue, Resource),
)


@dataclass(frozen=True)
class Scope:
    """What is tried, and how far."""

    name: str
    store: str = "server"
    modes: tuple[Mode, Mode] = ("exclusive", "exclusive")
    timeout: int | None = 0
    fair: bool | None = None
    faults: int = 1
    slow: int = 1  # how often time may pass while a request is under way
    depth: int = 10


SCOPES = (
    Scope("two try, one reply is lost"),
    Scope("two try, without a clock", store="observed"),
    Scope("two try, clock of whole seconds", store="seconds"),
    Scope("two try, whole commands", store="scripted"),
    Scope("one waits for the other", timeout=3 * TTL),
    Scope("one waits for the other, who amends", store="amending", timeout=3 * TTL),
    Scope(
        "a writer waits for a reader, and both amend", "amending", ("shared", "exclusive"), 3 * TTL
    ),
    Scope("a writer waits for a reader, fairly", "server", ("shared", "exclusive"), 3 * TTL, True),
    Scope("one waits, without a clock", store="observed", timeout=3 * TTL),
)


@dataclass
class Found:
    """What came of it."""

    schedules: int
    violation: Violation | None = None
    choices: tuple[int, ...] = ()
    text: str = ""


class Chooser:
    """Plays a given sequence of choices, then always the first; and counts the options."""

    def __init__(self, prefix: Sequence[int], depth: int) -> None:
        self._prefix = prefix
        self._depth = depth
        self.trail: list[tuple[int, int]] = []  # which, out of how many

    def choose(self, options: int) -> int:
        """Which of so many."""
        place = len(self.trail)
        if options == 1 or place >= self._depth:
            return 0
        choice = self._prefix[place] if place < len(self._prefix) else 0
        self.trail.append((choice, options))
        return choice

    def next_prefix(self) -> list[int] | None:
        """The next sequence in order, or None after the last."""
        trail = list(self.trail)
        while trail:
            choice, options = trail.pop()
            if choice + 1 < options:
                return [earlier for earlier, _ in trail] + [choice + 1]
        return None


class Pending:
    """A request on its way there or back."""

    __slots__ = ("answer", "answered", "effect", "epoch", "process", "sent")

    def __init__(self, process: Process, effect: Any, sent: int) -> None:
        self.process = process
        self.epoch = process.epoch
        self.effect = effect
        self.sent = sent
        self.answered = False
        self.answer: Any = None

    @property
    def awaited(self) -> bool:
        """Whether its sender still waits for it."""
        return self.process.epoch == self.epoch


class StillNetwork(Network):
    """Nothing moves unless it is chosen."""

    def __init__(self, world: SmallWorld) -> None:
        super().__init__(world)
        self._small = world

    def send(self, process: Process, effect: Any, sent: int) -> None:
        """Put it on its way."""
        self._small.note(process.client, "sends", effect)
        self._small.pending.append(Pending(process, effect, sent))

    def wait(self, process: Process, effect: Wait) -> None:
        """Wake the process when the key changes, or when its time is over."""
        client, epoch = process.client, process.epoch
        self._small.note(client, "waits", effect)
        self._waiting[effect.token] = process, epoch
        client.at(client.later(effect.at_most), process.wake, epoch)

        def notify(inherited: Inherited | None) -> None:
            found = inherited or self._small.store.entry(effect.key)
            client.at(self._small.t, process.wake, epoch, found)

        self._small.store.watch(effect.key, effect.version, effect.token, notify)


class SmallWorld(World):
    """A world in which a chooser decides what happens next."""

    def __init__(self, scope: Scope, chooser: Chooser) -> None:
        options = Options(0, store=scope.store, clients=2, keys=1)
        plan = make_plan(options)
        plan.workers, plan.preempts, plan.cancels = 1, 0.0, 0.0
        plan.watch_late = 0
        plan.ttls, plan.fates, plan.jitter, plan.beats_per_second = (TTL,), (), 0, None
        super().__init__(options, [checker() for checker in _SAFETY], plan=plan, record=True)
        self.preempts = 0.0
        self.network = StillNetwork(self)
        self.pending: list[Pending] = []
        self._scope = scope
        self._chooser = chooser
        self._faults = scope.faults
        self._slow = scope.slow
        for client, rate in zip(self.clients, (-MAX_DRIFT_PPM, MAX_DRIFT_PPM), strict=True):
            client.clock.rate = PPM + rate

    def explore(self) -> Violation | None:
        """Run one schedule to its end."""
        try:
            for client, mode in zip(self.clients, self._scope.modes, strict=True):
                self._start(client, mode)
            for _ in range(LONGEST_RUN):
                if not self.busy:
                    return None
                moves = self._moves()
                moves[self._chooser.choose(len(moves))]()
            raise Violation("progress", f"not done after {LONGEST_RUN} choices")
        except Violation as violation:
            return violation

    def _start(self, client: SimClient, mode: Mode) -> None:
        op = Op(client, f"{client.slot}.0.1", "hold", stream(0, client.slot), self.t)
        self.busy += 1
        client.start(op, self._script(client, op, mode), self._ended)

    def _ended(self, process: Process) -> None:
        process.client.forget(process)
        self.busy -= 1

    def _script(self, client: SimClient, op: Op, mode: Mode) -> Script[None]:
        attempt = claim(op, "a", TTL, mode, None)
        terms = Terms(self._scope.timeout, self._scope.fair, 10 * SECOND, Care(keep=False))
        steps = acquire_steps(client.observations, attempt, terms, client.now())
        belief = yield from enter(client, op, attempt, steps)
        if belief is not None:
            self.look(belief)
            with suppress(Interrupted):
                yield from Sleep(TTL // 2)
            self.look(belief)
            yield from release(client, op, belief)

    # --- what can happen next -------------------------------------------------------------------

    def _moves(self) -> list[Callable[[], None]]:
        """The natural one first."""
        moves: list[Callable[[], None]] = []
        for pending in self.pending:
            if pending.answered:
                moves.append(lambda p=pending: self._deliver(p))  # type: ignore[misc]
            else:
                moves.append(lambda p=pending: self._arrive(p))  # type: ignore[misc]
        if self.heap and (not self.pending or self._slow > 0):
            moves.append(self._pass_time)
        if self._faults > 0:
            for pending in self.pending:
                if pending.awaited:
                    moves.append(lambda p=pending: self._give_up(p))  # type: ignore[misc]
            for client in self.clients:
                if client.processes and client.processes[0].op.interruptible:
                    moves.append(lambda c=client: self._interrupt(c))  # type: ignore[misc]
        return moves

    def _arrive(self, pending: Pending) -> None:
        pending.answer = self.store.execute(
            pending.effect, pending.process.op, self.t, late=not pending.awaited
        )
        pending.answered = True
        if not pending.awaited:
            self.pending.remove(pending)

    def _deliver(self, pending: Pending) -> None:
        self.pending.remove(pending)
        pending.process.reply(pending.epoch, pending.effect, pending.sent, pending.answer)

    def _give_up(self, pending: Pending) -> None:
        """Its sender gives up; a reply is lost, a request may still arrive."""
        self._faults -= 1
        if pending.answered:
            self.pending.remove(pending)
        trouble = (Unavailable if isinstance(pending.effect, Load) else OutcomeUnknown)()
        self.note(pending.process.client, "gives up:", trouble)
        pending.process.wake(pending.epoch, None, trouble)

    def _interrupt(self, client: SimClient) -> None:
        self._faults -= 1
        client.processes[0].interrupt()

    def _pass_time(self) -> None:
        if self.pending:
            self._slow -= 1
        self.run_one()


def explore(scope: Scope, most: int | None = None) -> Found:
    """Try every schedule of a scope, or the first so many; stop at a violation."""
    schedules = 0
    prefix: list[int] | None = []
    while prefix is not None and (most is None or schedules < most):
        chooser = Chooser(prefix, scope.depth)
        world = SmallWorld(scope, chooser)
        violation = world.explore()
        schedules += 1
        if violation is not None:
            choices = tuple(choice for choice, _ in chooser.trail)
            text = "\n".join(timeline.lines(world.log or (), 2))
            return Found(schedules, violation, choices, text)
        prefix = chooser.next_prefix()
    return Found(schedules)
