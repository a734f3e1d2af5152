"""A simulated client: its clocks, its observations and its keeper.

The keeper's schedule is the core's. It runs as in `holdfast.runtime.keeper_thread`: a watch that
never waits for the store, and a few threads for the beats. The watch can be starved; only then may
it be late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from holdfast.core.cohorts import Cohorts
from holdfast.core.holds import Hold, State
from holdfast.core.keeper import Due, Keeper
from holdfast.core.observations import Observations
from holdfast.core.renewing import renew_many_steps, renew_steps
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.testing.sim.clocks import Clock, drawn_rate, stream
from holdfast.testing.sim.ledger import Belief
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import Process, Script, run

if TYPE_CHECKING:
    from holdfast.testing.sim.world import World

BEAT_THREADS = 4
_CLIENT, _BEATS = 11, 12
_DECADE = 10 * 365 * 24 * 3600 * 1_000_000


class SimClient:
    """One process on one machine."""

    def __init__(self, world: World, slot: int, generation: int) -> None:
        rng = stream(world.options.seed, _CLIENT, slot, generation)
        self.world = world
        self.slot = slot
        self.generation = generation
        self.name = f"c{slot}" + "'" * generation
        self.clock = Clock(drawn_rate(rng), rng.randrange(1, _DECADE))
        self.wall_offset = rng.randrange(_DECADE) if rng.random() < 0.7 else 5 * _DECADE
        self.observations = Observations(
            world.facts, lambda token: world.network.awaits(token, rng)
        )
        self.keeper = Keeper(world.plan.beats_per_second)
        self.cohorts = Cohorts(nullcontext())
        self.beliefs: dict[Hold, Belief] = {}
        self.processes: list[Process] = []
        self.dead = False
        self.paused_until = 0
        self.cut_until = 0
        self.starved_until = 0
        self.last_trouble = 0
        self.stood_still_until = 0  # all of it, or one of its threads
        self._beat_rng = stream(world.options.seed, _BEATS, slot, generation)
        self._beats = 0
        self._wakes_at: int | None = None
        self._parked: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._beating = 0
        self._waiting_beats: list[list[Hold]] = []

    # --- time ---------------------------------------------------------------------------------

    def at(self, t: int, do: Callable[..., None], *args: Any) -> None:
        """Call something on this client at true time `t`; a pause delays it, a crash drops it."""
        self.world.at(t, self._deliver, do, args)

    def _deliver(self, do: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.dead:
            return
        if self.world.t < self.paused_until:
            if not self._parked:
                self.world.at(self.paused_until, self._go_on)
            self._parked.append((do, args))
        else:
            do(*args)

    def _go_on(self) -> None:
        parked, self._parked = self._parked, []
        for do, args in parked:
            self.world.at(self.world.t, self._deliver, do, args)

    def heal(self) -> None:
        """End all pauses, partitions and starvation."""
        t = self.world.t
        self.paused_until = min(self.paused_until, t)
        self.cut_until = min(self.cut_until, t)
        self.starved_until = min(self.starved_until, t)
        self._go_on()
        self._wakes_at = None
        self.schedule_watch()
        for process in self.processes:
            process.op.cancel_in = 0

    def now(self) -> int:
        """The own monotonic clock."""
        return self.clock.at(self.world.t)

    def wall(self) -> int:
        """The own wall clock, which may show anything."""
        return self.world.t + self.wall_offset

    def later(self, duration: int) -> int:
        """The true time at which the own clock has advanced by this much."""
        return self.clock.reaches(self.now() + duration)

    def trouble_until(self, *times: int) -> int:
        """Returns until when something is wrong: the last of these times."""
        last = max(times)
        self.last_trouble = max(self.last_trouble, last)
        return last

    @property
    def impeded_until(self) -> int:
        """Returns until when the watch could not run."""
        return max(self.paused_until, self.starved_until)

    # --- processes ----------------------------------------------------------------------------

    def start(self, op: Op, script: Script[Any], on_end: Callable[[Process], None]) -> None:
        """Start a thread."""
        process = Process(self, op, script, on_end)
        self.processes.append(process)
        process.resume(None)

    def forget(self, process: Process) -> None:
        """A thread has ended."""
        self.processes.remove(process)

    def crash(self) -> None:
        """End the client at once, without any clean-up."""
        self.dead = True
        self.world.ledger.gone(self)
        for process in self.processes:
            process.kill()

    # --- leases -------------------------------------------------------------------------------

    def adopt(self, hold: Hold, op: Op) -> Belief:
        """Look after a lease that was granted."""
        belief = Belief(self, hold, op, self.world.t)
        self.beliefs[hold] = belief
        self.keeper.add(hold)
        self.schedule_watch()
        self.world.note(self, "holds", hold)
        op.got.append(belief)
        self.world.ledger.begun(belief)
        return belief

    def keep(self, hold: Hold, op: Op) -> None:
        """Look after a lease of an acquire_all that is still going on."""
        self.adopt(hold, op)

    def end(self, hold: Hold, state: State, how: str) -> bool:
        """End a hold for good. Returns False if it had ended before."""
        self.keeper.discard(hold)
        if not hold.end(state, how):
            return False
        self._over(hold, how)
        return True

    def lose(self, hold: Hold, why: str) -> None:
        """End a hold that turned out to be lost."""
        self.keeper.discard(hold)
        if hold.end("lost", why):
            self._lost(hold)

    def dropped(self, hold: Hold) -> None:
        """Nothing refers to the lease any more."""
        if self.end(hold, "lost", "dropped"):
            self.cohorts.move_on(hold.member)

    def look_around(self) -> None:
        """Ask of every lease whether it is still held, as a program might at any time."""
        for belief in list(self.beliefs.values()):
            self.world.look(belief)

    def extended(self, hold: Hold) -> None:
        """A renewal went through."""
        belief = self.beliefs.get(hold)
        if belief is not None:
            self.world.note(self, "renewed", hold)
            self.world.ledger.extended(belief)

    def _lost(self, hold: Hold) -> None:
        belief = self.beliefs.get(hold)
        if belief is not None:
            belief.told_lost = True
        self._over(hold, "lost")
        self.cohorts.move_on(hold.member)

    def _over(self, hold: Hold, how: str) -> None:
        belief = self.beliefs.pop(hold, None)
        self.world.note(self, how, hold)
        if belief is not None:
            self.world.ledger.ended(belief, how)

    # --- the watch ----------------------------------------------------------------------------

    def schedule_watch(self) -> None:
        """Wake the watch when the schedule says so."""
        next_at = self.keeper.next_at()
        if next_at is None:
            return
        t = max(self.clock.reaches(next_at), self.world.t)
        late = self.world.plan.watch_late
        if late:
            t = -(-t // late) * late
        if self._wakes_at is None or t < self._wakes_at:
            self._wakes_at = t
            self.at(t, self._watch, t)

    def _watch(self, wakes_at: int) -> None:
        if wakes_at != self._wakes_at:
            return
        if self.world.t < self.starved_until:
            self._wakes_at = self.starved_until
            self.at(self.starved_until, self._watch, self.starved_until)
            return
        self._wakes_at = None
        while due := self.keeper.poll(self.now()):
            self._tell(due)
        self.schedule_watch()

    def _tell(self, due: Due) -> None:
        for hold in due.losses:
            self._lost(hold)
        batch = self.world.facts.batch
        for start in range(0, len(due.beats), batch):
            self._waiting_beats.append(due.beats[start : start + batch])
        self._start_beats()
        for hold in due.dangers:
            belief = self.beliefs.get(hold)
            if belief is not None:
                belief.danger = True
                self.world.note(self, "in danger", hold)

    # --- beats --------------------------------------------------------------------------------

    def _start_beats(self) -> None:
        while self._waiting_beats and self._beating < BEAT_THREADS:
            self._beating += 1
            self._beats += 1
            holds = self._waiting_beats.pop(0)
            op = Op(self, f"{self.name}.beat{self._beats}", "beat", self._beat_rng, self.world.t)
            op.tokens = {hold.token for hold in holds}
            op.interruptible = False
            self.start(op, self._beat_script(holds), self._beat_ended)

    def _beat_ended(self, process: Process) -> None:
        self.forget(process)
        self._beating -= 1
        self._start_beats()

    def _beat_script(self, holds: list[Hold]) -> Script[None]:
        live = [hold for hold in holds if hold.state == "held"]
        outcomes: Sequence[HoldfastError | None]
        if len(live) > 1 and self.world.facts.batch > 1:
            try:
                outcomes = yield from run(renew_many_steps(self.observations, live))
            except HoldfastError as trouble:
                outcomes = [trouble] * len(live)
        else:
            outcomes = []
            for hold in live:
                outcomes.append((yield from self._beat_one(hold)))
        for hold, outcome in zip(live, outcomes, strict=True):
            self._beat_done(hold, outcome)

    def _beat_one(self, hold: Hold) -> Script[HoldfastError | None]:
        try:
            yield from run(renew_steps(self.observations, hold))
        except HoldfastError as trouble:
            return trouble
        return None

    def _beat_done(self, hold: Hold, outcome: HoldfastError | None) -> None:
        if isinstance(outcome, LeaseLost):
            self.lose(hold, str(outcome))
            return
        if self.keeper.beat_done(hold, self.now(), renewed=outcome is None):
            belief = self.beliefs.get(hold)
            if belief is not None:
                belief.danger = False
        if outcome is None:
            self.extended(hold)
        self.schedule_watch()
