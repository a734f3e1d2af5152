"""A thread of a simulated client: it runs generators as the real drivers run them.

At the bottom of its stack is what a caller does, a generator of the simulator. When that
yields `Run(steps)`, the core's steps go on top and their effects are answered one by one,
as in `holdfast.runtime.driver`. An interrupt *closes* the steps where they stand and is
thrown into the caller's generator, which cleans up as the faces do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.effects import (
    Draw,
    Emit,
    Keep,
    Load,
    Now,
    Park,
    Scan,
    Sleep,
    Steps,
    Wait,
    Wall,
)
from holdfast.errors import HoldfastError
from holdfast.testing.sim.checker import Violation

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient
    from holdfast.testing.sim.ops import Op

# How long a thread that was woken takes to run.
LONGEST_WAKE = 2_000

R = TypeVar("R")
Script = Generator[Any, Any, R]


class Interrupted(BaseException):
    """The caller was interrupted (Ctrl-C, or a cancelled task)."""


class Run:
    """Run these steps and give me what they return or raise."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps[Any]) -> None:
        self.steps = steps


def run(steps: Steps[R]) -> Script[R]:
    """The typed form of `Run`."""
    answer: R = yield Run(steps)
    return answer


class Process:
    """One thread of one client."""

    __slots__ = ("client", "epoch", "on_end", "op", "stack")

    def __init__(
        self, client: SimClient, op: Op, script: Script[Any], on_end: Callable[[Process], None]
    ) -> None:
        self.client = client
        self.op = op
        self.on_end = on_end
        self.stack: list[Generator[Any, Any, Any]] = [script]
        self.epoch = 0  # counts the answers: one that was not waited for any more is void

    def wake(self, epoch: int, answer: Any = None, trouble: Exception | None = None) -> None:
        """An answer comes, unless it is not waited for any more."""
        if epoch == self.epoch and self.stack:
            self.resume(answer, trouble)

    def interrupt(self) -> None:
        """End the steps where they stand, and tell the caller."""
        if not self.stack or not self.op.interruptible:
            return
        self.epoch += 1
        while len(self.stack) > 1:
            self.stack.pop().close()
        self.op.interruptible = False
        self.client.world.note(self.client, "interrupted", self.op)
        self.resume(None, Interrupted())

    def kill(self) -> None:
        """The process died: nothing more is done, in particular no cleaning up."""
        self.epoch += 1
        while self.stack:
            self.stack.pop().close()

    def resume(self, answer: Any, trouble: BaseException | None = None) -> None:
        """Go on until there is something to wait for."""
        self.epoch += 1
        stack, client, op = self.stack, self.client, self.op
        world = client.world
        while stack:
            steps = stack[-1]
            try:
                effect = steps.send(answer) if trouble is None else steps.throw(trouble)
            except StopIteration as done:
                stack.pop()
                answer, trouble = done.value, None
                continue
            except (HoldfastError, Interrupted) as exc:
                stack.pop()
                answer, trouble = None, exc
                continue
            except Violation:
                raise
            except Exception as exc:
                raise Violation("no-surprise", f"{op} broke with {exc!r}") from exc
            answer = trouble = None
            kind = type(effect)
            if kind is Run:
                stack.append(effect.steps)
                continue
            world.effects += 1
            if op.cancel_in:
                op.cancel_in -= 1
                if not op.cancel_in and op.interruptible and self._cancelled(effect):
                    return
            if kind is Now:
                answer = client.clock.at(world.t)
                if world.preempts and op.rng.random() < world.preempts:
                    client.at(self._stall(), self.wake, self.epoch, answer)
                    return
            elif kind is Draw:
                answer = op.draw(effect.size)
            elif kind is Wall:
                answer = client.wall()
            elif kind is Keep:
                client.keep(effect.hold, op)
            elif kind is Emit:
                pass
            else:
                self._wait_for(effect, kind)
                return
        if trouble is not None:
            raise Violation("no-surprise", f"{op} ended with {trouble!r}")
        self.on_end(self)

    def _wait_for(self, effect: Any, kind: type) -> None:
        client, epoch = self.client, self.epoch
        world = client.world
        if kind is Sleep:
            client.at(client.later(effect.duration), self.wake, epoch)
        elif kind is Park:
            effect.member.wake = partial(self._wake_parked, epoch)
            client.at(client.later(effect.at_most), self.wake, epoch)
        elif kind is Wait:
            world.network.wait(self, effect)
        elif world.preempts and self.op.rng.random() < world.preempts:
            client.at(self._stall(), self._send, epoch, effect, client.now())
        else:
            world.network.send(self, effect, client.now())

    def _wake_parked(self, epoch: int) -> None:
        """Another thread of this client wakes this one, which runs a moment later."""
        world, rng = self.client.world, self.op.rng
        stalls = world.preempts and rng.random() < world.preempts
        at = self._stall() if stalls else world.t + int(rng.random() * LONGEST_WAKE)
        self.client.at(at, self.wake, epoch)

    def _send(self, epoch: int, effect: Any, sent: int) -> None:
        if epoch == self.epoch and self.stack:
            self.client.world.network.send(self, effect, sent)

    def reply(self, epoch: int, effect: Any, sent: int, answer: Any) -> None:
        """A store's answer comes: stamp it as a driver does, and go on, if not at once."""
        world = self.client.world
        stalls = world.preempts and self.op.rng.random() < world.preempts
        if stalls and world.plan.watched:  # before it reads its clock
            self.client.at(self._stall(), self._wake_stamped, epoch, type(effect), sent, answer)
        elif stalls:
            stamped = self._stamped(type(effect), sent, answer)
            self.client.at(self._stall(), self.wake, epoch, stamped)
        else:
            self._wake_stamped(epoch, type(effect), sent, answer)

    def _wake_stamped(self, epoch: int, kind: type, sent: int, answer: Any) -> None:
        self.wake(epoch, self._stamped(kind, sent, answer))

    def _stamped(self, kind: type, sent: int, answer: Any) -> Any:
        if kind is Load:
            return answer, sent, self.client.now()
        return answer if kind is Scan else (answer, self.client.now())

    def _stall(self) -> int:
        """This thread stands still; until when. Others of its client look around meanwhile."""
        client = self.client
        world, rng = client.world, self.op.rng
        until = client.trouble_until(world.t + world.pause_length(rng))
        client.stood_still_until = max(client.stood_still_until, until)
        if rng.random() < 0.5:  # and so does the watch, for a little longer
            longer = until + int(rng.random() * world.plan.longest_ttl // 4)
            client.starved_until = client.trouble_until(longer, client.starved_until)
        client.at(until, client.look_around)
        return until

    def _cancelled(self, effect: Any) -> bool:
        """Interrupt here; or, if a request is about to leave, perhaps a little later."""
        kind = type(effect)
        world = self.client.world
        if kind in (Now, Draw, Wall, Keep, Emit) or self.op.rng.random() < 0.3:
            self.interrupt()
            return True
        if kind is Park:  # when it has been woken, and may have something to lose
            self.op.cancel_in = 1
            return False
        delay = int(self.op.rng.random() * 3 * (world.plan.latency + world.plan.jitter))
        self.client.at(world.t + delay, self.interrupt)
        return False
