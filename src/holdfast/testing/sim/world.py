"""One simulated world: true time, the parties, and what happens in which order.

A run has three parts:

 1. *Trouble*: the clients work and things go wrong, for so many effects of the core.
 2. *Healing*: nothing goes wrong any more, and nobody starts anything new. What is under
    way must come to its end within a bound (`checks.progress`).
 3. *Afterwards*: all clients are gone. Once the ttl has passed, a newcomer must be able to
    get every lock (`checks.leaks`).

Everything random comes from the seed, and events at the same microsecond happen in the
order in which they were planned. So the same options give the same history.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from holdfast.core.tickets import Ticket
from holdfast.testing.sim.checker import Checker, Violation
from holdfast.testing.sim.checks import all_checkers
from holdfast.testing.sim.client import SimClient
from holdfast.testing.sim.clocks import Clock, drawn_rate, stream
from holdfast.testing.sim.ledger import Belief, Goal, Landing, Ledger
from holdfast.testing.sim.nemesis import Nemesis
from holdfast.testing.sim.network import Network
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.plan import Options, Plan, make_plan
from holdfast.testing.sim.process import Process
from holdfast.testing.sim.stores import StoreModel
from holdfast.testing.sim.work import pick_kind, work

_STORE, _OP, _WRITE = 31, 32, 33
LATE = 0.2  # how many writes are late, where threads stand still
BACKGROUND = ("beat", "clean")  # what no caller waits for
STORE_EPOCH = 1_700_000_000_000_000

Note = tuple[int, str, str, Any]


class Worker:
    """A caller of one client slot: does one thing after the other."""

    def __init__(self, world: World, slot: int, number: int) -> None:
        self._world = world
        self._slot = slot
        self._number = number
        self._count = 0

    def next(self) -> None:
        """Start the next operation after a while."""
        world = self._world
        if world.healing:
            return
        client = world.clients[self._slot]
        self._count += 1
        label = f"{self._slot}.{self._number}.{self._count}"
        rng = stream(world.options.seed, _OP, self._slot, self._number, self._count)
        gap = int(rng.random() * (world.plan.longest_ttl // (200 if world.plan.crowd else 4)))
        client.at(world.t + gap, self._start, client, label, rng)

    def _start(self, client: SimClient, label: str, rng: Random) -> None:
        world = self._world
        if world.healing:
            return
        if label in world.options.skip:
            self.next()
            return
        op = Op(client, label, "", rng, world.t)
        op.kind = pick_kind(client, op)
        if rng.random() < world.plan.cancels:
            op.cancel_in = 1 + int(rng.random() * (8 if world.plan.crowd else 25))
        world.busy += 1
        world.note(client, "starts", op)
        client.start(op, work(client, op), self._ended)

    def _ended(self, process: Process) -> None:
        process.client.forget(process)
        self._world.busy -= 1
        self.next()


class World:
    """One simulated world, from the first event to the last."""

    def __init__(
        self,
        options: Options,
        checkers: list[Checker] | None = None,
        *,
        plan: Plan | None = None,
        record: bool = False,
    ) -> None:
        self.options = options
        self.plan = make_plan(options) if plan is None else plan
        self.facts = self.plan.kind.facts
        self.t = 0
        self.effects = 0
        self.busy = 0  # operations under way
        self.healing = False
        self.preempts = self.plan.preempts
        self.offered: list[Ticket] = []
        self.shared: list[Ticket] = []
        self.published: dict[Goal, int] = {}  # the results of `once`, and since when they are there
        self.log: list[Note] | None = [] if record else None
        self.heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0
        self.ledger = Ledger(self, all_checkers() if checkers is None else checkers)
        self._writes = stream(options.seed, _WRITE)
        rng = stream(options.seed, _STORE)
        clock = Clock(drawn_rate(rng), STORE_EPOCH + rng.randrange(1_000_000))
        self.store = StoreModel(self.plan.kind, clock, rng, self.ledger)
        self.network = Network(self)
        self.nemesis = Nemesis(self)
        self.clients = [SimClient(self, slot, 0) for slot in range(self.plan.clients)]
        self._workers = [
            [Worker(self, slot, number) for number in range(self.plan.workers)]
            for slot in range(self.plan.clients)
        ]

    # --- time ---------------------------------------------------------------------------------

    def at(self, t: int, do: Callable[..., None], *args: Any) -> None:
        """Plan something for true time `t`."""
        self._planned += 1
        heappush(self.heap, (t if t > self.t else self.t, self._planned, do, args))

    def run_while(self, going_on: Callable[[], bool]) -> None:
        """Let things happen as long as this is so and something is planned."""
        while self.heap and going_on():
            self.run_one()

    def run_one(self) -> None:
        """Let the next thing happen."""
        self.t, _, do, args = heappop(self.heap)
        do(*args)

    def pause_length(self, rng: Random) -> int:
        """For how long something stands still: about a ttl, or far longer than one."""
        if rng.random() < 0.5:
            return int(rng.random() * self.plan.longest_stall)
        return int((0.5 + rng.random() * 0.6) * self.plan.ttls[0])

    # --- the run ------------------------------------------------------------------------------

    def run(self) -> Violation | None:
        """Run to the end, or to the first violation."""
        try:
            self._trouble()
            self.heal()
            self.ledger.finished()
        except Violation as violation:
            return violation
        return None

    def _trouble(self) -> None:
        for workers in self._workers:
            for worker in workers:
                worker.next()
        self.nemesis.start()
        steps = self.options.steps
        heap = self.heap
        while heap and self.effects < steps:
            self.t, _, do, args = heappop(heap)
            do(*args)

    def heal(self) -> None:
        """Nothing goes wrong from here on, and nothing new is begun."""
        self.healing = True
        self.preempts = 0.0
        self.network.heal()
        self.store.down_until = min(self.store.down_until, max(self.t, self.store.takes_over_at))
        self.store.stalled_until = min(self.store.stalled_until, self.t)
        for client in self.clients:
            client.heal()
        self.note(None, "healed", None)

    def replace(self, client: SimClient, delay: int) -> None:
        """A client crashes; a new one takes its slot, at once known and soon at work."""
        running = sum(1 for process in client.processes if process.op.kind not in BACKGROUND)
        self.busy -= running
        client.crash()
        newcomer = SimClient(self, client.slot, client.generation + 1)
        self.clients[client.slot] = newcomer
        for worker in self._workers[client.slot]:
            newcomer.at(self.t + delay, worker.next)

    def newcomer(self) -> SimClient:
        """Returns a new client that has seen nothing of this world."""
        client = SimClient(self, len(self.clients), 0)
        self.clients.append(client)
        return client

    def look(self, belief: Belief) -> None:
        """A party looks whether it still holds."""
        client = belief.client
        self.ledger.looked(belief, belief.hold.valid(client.now()))

    def look_and_write(self, belief: Belief) -> None:
        """A party looks whether it still holds, and then writes. It may stand still in between."""
        self.look(belief)
        hold, client = belief.hold, belief.client
        if hold.holder.mode != "exclusive" or not hold.valid(client.now()):
            return
        rng = self._writes
        stands_still = rng.random() < LATE and self.preempts > 0
        delay = self.pause_length(rng) if stands_still else int(rng.random() * self.plan.latency)
        client.at(self.t + delay, self.ledger.wrote, belief)

    # --- the record of it ---------------------------------------------------------------------

    def note(self, client: SimClient | None, what: str, detail: Any) -> None:
        """Keep for the timeline, if there is to be one."""
        if self.log is not None:
            self.log.append((self.t, "" if client is None else client.name, what, detail))

    def note_landing(self, landing: Landing) -> None:
        """A write was carried out."""
        self.note(None, f"{landing.op.client.name} writes", landing)
