"""Between the clients and the store: latency, loss, repetition, delay.

A request's fate is drawn when it is sent, from the chance of the operation that sends it.
A client gives up on a request when the time is over by which its answer would have been of use;
the request may be carried out all the same, and even later than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.contract import Inherited
from holdfast.core.effects import ApplyMany, Load, Scan, SwapMany, Wait
from holdfast.core.waiting import sent_by
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from holdfast.testing.sim.process import Process
    from holdfast.testing.sim.world import World

POLL_EVERY = 400_000
WRONGLY_AWAITED = 0.1
LATE_NOTICES = 0.3


class Request:
    """A request on its way."""

    __slots__ = ("effect", "epoch", "fate", "gives_up_at", "process", "ran", "sent", "settled")

    def __init__(
        self, process: Process, effect: Any, sent: int, fate: str, gives_up_at: int
    ) -> None:
        self.process = process
        self.epoch = process.epoch
        self.effect = effect
        self.sent = sent
        self.fate = fate
        self.gives_up_at = gives_up_at
        self.ran = False  # it was carried out at least once
        self.settled = False  # its sender has its answer, or is about to give up

    def awaited(self, t: int) -> bool:
        """Whether the sender still waits for the answer."""
        process = self.process
        return process.epoch == self.epoch and t <= self.gives_up_at and not process.client.dead


class Network:
    """All connections of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._store = world.store
        self._fates = world.plan.fates
        self._worst = self._fates[-1][0] if self._fates else 0.0
        self._cut = 0  # connections from before this are dead
        self._waiting: dict[str, tuple[Process, int]] = {}  # by token
        rng = world.store.rng
        world.store.awaits = lambda token: self.awaits(token, rng)

    def heal(self) -> None:
        """From now on requests arrive, once, and are answered."""
        self._fates, self._worst = (), 0.0

    def cut_all(self) -> None:
        """Drop all connections, with every request and reply on its way."""
        self._cut = self._world.t
        self._store.hang_up()

    # --- requests -----------------------------------------------------------------------------

    def send(self, process: Process, effect: Any, sent: int) -> None:
        """Send a request, stamped with its client's time; its process will be woken with
        the answer, or with an error."""
        world, client, rng = self._world, process.client, process.op.rng
        t = world.t
        process.op.requests += 1
        fate = self._fate(rng.random()) if self._worst else ""
        try:
            by = sent_by(effect.by, sent, self._plan.request_timeout)
        except Unavailable as too_late:
            client.at(t, process.wake, process.epoch, None, too_late)
            return
        request = Request(process, effect, sent, fate, max(t, client.clock.reaches(by)))
        world.note(client, "sends", effect)
        if fate:
            client.trouble_until(request.gives_up_at)
        if client.cut_until > t or fate == "request-lost":
            if rng.random() < 0.3:
                self._settle(request, t + self._latency(rng), None, Unavailable("It was refused."))
            else:
                self._time_out(request)
            return
        arrives_at = t + self._latency(rng)
        if fate == "delay" and rng.random() < 0.6:
            arrives_at += int(rng.random() * self._plan.longest_delay)
        if arrives_at > request.gives_up_at:
            self._time_out(request)
        world.at(arrives_at, self._arrive, request, t)
        if fate == "duplicate":
            again_at = arrives_at + int(rng.random() * self._plan.longest_delay)
            if rng.random() < 0.5:
                request.fate = ""
                world.at(again_at, self._arrive_again, request, t)
            else:  # the first answer is lost, and something below us sends it once more
                world.at(min(again_at, arrives_at + 50_000), self._arrive, request, t)
                world.at(request.gives_up_at, self._give_up, request)
                request.fate = "unheard"

    def _arrive(self, request: Request, sent: int) -> None:
        world, process = self._world, request.process
        t, rng = world.t, process.op.rng
        if t < self._store.down_until or sent < self._cut:
            self._unreachable(request)
            return
        stalled = t < self._store.stalled_until and type(request.effect) not in (Load, Scan)
        if stalled and self._store.stalled_writes_are_lost:
            self._time_out(request)
            return
        if request.fate == "error" and rng.random() < 0.5:
            self._settle(request, t + self._latency(rng), None, Unavailable("The store said no."))
            return
        late = not request.awaited(t)
        answer = self._store.execute(request.effect, process.op, t, late=late, sent=sent)
        request.ran = True
        if request.fate == "unheard":
            request.fate = ""
            return
        if stalled or request.fate in ("reply-lost", "error"):
            self._time_out(request)
            return
        replies_at = t + self._latency(rng)
        if request.fate == "delay":
            replies_at += int(rng.random() * self._plan.longest_delay)
        if replies_at > request.gives_up_at:
            self._time_out(request)
        else:
            world.at(replies_at, self._reply, request, t, answer)

    def _arrive_again(self, request: Request, sent: int) -> None:
        if self._world.t >= self._store.down_until and sent >= self._cut:
            process = request.process
            self._store.execute(
                request.effect, process.op, self._world.t, late=True, again=True, sent=sent
            )

    def _reply(self, request: Request, sent: int, answer: Any) -> None:
        process = request.process
        client = process.client
        answer = self._store.read_clock_last(answer, self._world.t)
        if client.cut_until > self._world.t or sent < self._cut:
            self._time_out(request)
        elif client.paused_until > self._world.t:
            client.at(self._world.t, self._hand_in, request, answer)
        elif not client.dead:
            self._hand_in(request, answer)

    def _hand_in(self, request: Request, answer: Any) -> None:
        request.process.reply(request.epoch, request.effect, request.sent, answer)

    # --- when it fails ------------------------------------------------------------------------

    def _unreachable(self, request: Request) -> None:
        rng = request.process.op.rng
        if rng.random() < 0.5 and not request.ran:
            again = Unavailable("The store is not there.")
            self._settle(request, self._world.t + self._latency(rng), None, again)
        else:
            self._time_out(request)

    def _time_out(self, request: Request) -> None:
        """Let the sender give up after its time: no answer will come."""
        effect = request.effect
        rng = request.process.op.rng
        unknown = OutcomeUnknown("No answer came.")
        if type(effect) in (Load, Scan) and rng.random() < 0.7:
            self._settle(request, request.gives_up_at, None, Unavailable("It took too long."))
        elif type(effect) is SwapMany and rng.random() < 0.5:
            self._settle(request, request.gives_up_at, (unknown,) * len(effect.swaps), None)
        elif type(effect) is ApplyMany and rng.random() < 0.5:
            self._settle(request, request.gives_up_at, (unknown,) * len(effect.applies), None)
        else:
            self._settle(request, request.gives_up_at, None, unknown)

    def _give_up(self, request: Request) -> None:
        """The sender's time is over. It may have its answer."""
        if request.process.epoch == request.epoch:
            self._time_out(request)

    def _settle(self, request: Request, t: int, answer: Any, trouble: HoldfastError | None) -> None:
        if not request.settled:
            request.settled = True
            t = min(t, request.gives_up_at)
            request.process.client.trouble_until(t)
            request.process.client.at(t, self._tell, request, answer, trouble)

    def _tell(self, request: Request, answer: Any, trouble: HoldfastError | None) -> None:
        process = request.process
        self._world.note(process.client, "fails", trouble)
        if trouble is None:
            self._hand_in(request, answer)
        else:
            process.wake(request.epoch, None, trouble)

    # --- waiting ------------------------------------------------------------------------------

    def wait(self, process: Process, effect: Wait) -> None:
        """Wake the process when the key changes (where the store can tell), or in time."""
        client, epoch = process.client, process.epoch
        self._world.note(client, "waits", effect)
        self._waiting[effect.token] = process, epoch
        if not self._plan.kind.push:
            client.at(client.later(min(effect.at_most, POLL_EVERY)), process.wake, epoch)
            return
        client.at(client.later(effect.at_most), process.wake, epoch)

        def notify(inherited: Inherited | None) -> None:
            rng = process.op.rng
            if process.epoch == epoch and not client.dead:
                lost = client.cut_until > self._world.t or rng.random() < self._worst / 2
                if not lost:
                    # Some stores show the record in a notification; it may change on the way.
                    found = self._store.entry(effect.key) if rng.random() < 0.5 else None
                    arrives_at = self._world.t + self._latency(rng)
                    if found is None and inherited is not None:
                        self._tell_heir(process, effect.token, arrives_at, inherited)
                    else:
                        client.at(arrives_at, process.wake, epoch, found)

        self._store.watch(effect.key, effect.version, effect.token, notify)

    def _tell_heir(self, process: Process, token: str, t: int, inherited: Inherited) -> None:
        """Bring a notice, perhaps so late that its heir has looked, and waits once more."""
        if process.op.rng.random() < LATE_NOTICES:
            t += int(process.op.rng.random() * self._plan.longest_delay)
        process.client.at(t, self._notice_comes, token, inherited)

    def _notice_comes(self, token: str, inherited: Inherited) -> None:
        process, epoch = self._waiting[token]
        process.wake(epoch, inherited)

    def awaits(self, token: str, rng: Any) -> bool:
        """Whether a call waits with this token. While there are faults, that may be wrong."""
        if self._worst and rng.random() < WRONGLY_AWAITED:
            return True
        process, epoch = self._waiting.get(token, (None, 0))
        return process is not None and process.epoch == epoch and not process.client.dead

    # --- chance -------------------------------------------------------------------------------

    def _fate(self, throw: float) -> str:
        if throw < self._worst:
            for reached, name in self._fates:
                if throw < reached:
                    return name
        return ""

    def _latency(self, rng: Any) -> int:
        jitter = self._plan.jitter
        return self._plan.latency + (int(rng.random() ** 3 * jitter) if jitter else 0)
