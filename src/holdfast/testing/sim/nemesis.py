"""Incidents: crashes, pauses, partitions and the like, each with its own source of chance."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from holdfast.testing.sim.clocks import stream

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient
    from holdfast.testing.sim.world import World

_GAPS, _INCIDENT = 21, 22
_DAY = 24 * 3600 * 1_000_000


class Nemesis:
    """Causes incidents until the world is healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._gaps = stream(world.options.seed, _GAPS)
        self._count = 0
        self._do = {
            "restart": self._restart,
            "failover": self._failover,
            "stall": self._stall,
            "crash": self._crash,
            "pause": self._pause,
            "partition": self._partition,
            "clock-jump": self._clock_jump,
            "starved": self._starve,
        }

    def start(self) -> None:
        """Plan the first incident."""
        if self._plan.incidents:
            gap = int(self._gaps.random() * 2 * self._plan.incident_gap)
            self._world.at(self._world.t + gap, self._strike)

    def _strike(self) -> None:
        world = self._world
        if world.healing:
            return
        self._count += 1
        rng = stream(world.options.seed, _INCIDENT, self._count)
        label = f"n{self._count}"
        what = self._plan.incidents[int(rng.random() * len(self._plan.incidents))]
        if label not in world.options.skip:
            self._do[what](rng, label)
        self.start()

    # --- incidents ----------------------------------------------------------------------------

    def _restart(self, rng: Random, label: str) -> None:
        """All connections break; the data stays."""
        until = self._world.t + int(rng.random() * self._plan.longest_ttl)
        self._go_down(until)
        self._world.note(None, f"{label} restart until", until)

    def _stall(self, rng: Random, label: str) -> None:
        """Writes are not answered for a while."""
        store = self._world.store
        store.stalled_until = max(store.stalled_until, self._until(rng))
        store.stalled_writes_are_lost = rng.random() < 0.5
        for client in self._world.clients:
            client.trouble_until(store.stalled_until + self._plan.request_timeout)
        self._world.note(None, f"{label} writes stall until", store.stalled_until)

    def _failover(self, rng: Random, label: str) -> None:
        """A replica takes over. It takes longer than any client's view of the clock is
        ahead: so the fence goes on growing although the last writes are gone."""
        world = self._world
        since = world.t - int(rng.random() * self._plan.longest_ttl)
        until = world.t + self._plan.clock_reach + int(rng.random() * self._plan.longest_ttl)
        lost = world.store.fail_over(since)
        world.store.takes_over_at = until
        self._go_down(until)
        world.note(None, f"{label} failover, writes lost", lost)

    def _go_down(self, until: int) -> None:
        store = self._world.store
        store.down_until = max(store.down_until, until)
        self._world.network.cut_all()

    def _crash(self, rng: Random, label: str) -> None:
        """A client dies; a new one comes in its place after a while."""
        client = self._victim(rng)
        self._world.note(client, f"{label} crash", None)
        self._world.replace(client, int(rng.random() * self._plan.longest_ttl))

    def _pause(self, rng: Random, label: str) -> None:
        client = self._victim(rng)
        client.paused_until = client.trouble_until(self._until(rng), client.paused_until)
        client.stood_still_until = max(client.stood_still_until, client.paused_until)
        self._world.note(client, f"{label} pause until", client.paused_until)

    def _partition(self, rng: Random, label: str) -> None:
        until = self._until(rng)
        for client in self._world.clients:
            if rng.random() < 0.5:
                client.cut_until = client.trouble_until(until, client.cut_until)
                self._world.note(client, f"{label} cut off until", until)

    def _clock_jump(self, rng: Random, label: str) -> None:
        client = self._victim(rng)
        client.wall_offset = max(0, client.wall_offset + rng.randrange(-_DAY, _DAY))
        self._world.note(client, f"{label} wall clock jumps", None)

    def _starve(self, rng: Random, label: str) -> None:
        client = self._victim(rng)
        client.starved_until = client.trouble_until(self._until(rng), client.starved_until)
        self._world.note(client, f"{label} keeper starved until", client.starved_until)

    def _until(self, rng: Random) -> int:
        return self._world.t + self._world.pause_length(rng)

    def _victim(self, rng: Random) -> SimClient:
        clients = self._world.clients
        return clients[int(rng.random() * len(clients))]
