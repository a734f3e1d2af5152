"""What one run is: its options, and everything that its seed decides beforehand.

Swarm testing: a run switches each kind of fault on or off by a throw of the coin and
weights those that are on. A run with all faults at once rarely gets anywhere deep; runs
with few kinds of fault do, and they differ from each other.

Faults of single requests, at most one per request:

    request-lost   it never arrives
    reply-lost     it is carried out, and nobody hears of it
    duplicate      it arrives twice; the answer is that of either
    delay          it, or its reply, takes up to several ttls; a write may land long after
                   its sender has given up on it and looked
    error          the store refuses, or fails half-way

Incidents, from time to time:

    restart  partition  crash  pause  clock-jump  starved
    stall          reads are answered, writes are not; they may be carried out all the same
    failover       (where the store has replicas) the last writes are gone

And everywhere: `reordering` (latencies differ, so requests overtake each other), `cancel`
(the caller is interrupted at any yield), `preempt` (a thread stands still right after it
has read its clock).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.core.records import SECOND, Micros
from holdfast.testing.sim.clocks import stream
from holdfast.testing.sim.kinds import KINDS, StoreKind

REQUEST_FAULTS: Final = ("request-lost", "reply-lost", "duplicate", "delay", "error")
INCIDENTS: Final = (
    *("restart", "stall", "partition", "crash", "pause", "clock-jump", "starved", "failover"),
)
EVERYWHERE: Final = ("reordering", "cancel", "preempt")
FAULTS: Final = REQUEST_FAULTS + INCIDENTS + EVERYWHERE

DEFAULT_STEPS = 220
TTLS: Final = (300_000, 800_000, 2 * SECOND, 5 * SECOND)
TIMEOUTS: Final = (100_000, 400_000, 1 * SECOND, 2 * SECOND)
_PLAN, _RATES = 1, 2


@dataclass(frozen=True)
class Options:
    """What identifies a run. The same options give the same history, byte for byte."""

    seed: int
    steps: int = DEFAULT_STEPS
    store: str | None = None  # None: the seed decides, here and below
    clients: int | None = None
    keys: int | None = None
    without: tuple[str, ...] = ()  # kinds of fault that are switched off
    skip: tuple[str, ...] = ()  # operations and incidents that are left out

    def command(self) -> str:
        """What to type to see this history."""
        words = [f"python -m holdfast.testing.sim --seed {self.seed} --steps {self.steps}"]
        for name in ("store", "clients", "keys"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"--{name} {value}")
        for name in ("without", "skip"):
            values = getattr(self, name)
            if values:
                words.append(f"--{name} {','.join(values)}")
        return " ".join(words)

    def but(self, **changes: object) -> Options:
        """The same with some things changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass
class Plan:
    """What the seed decides before the first event."""

    kind: StoreKind
    clients: int
    workers: int  # threads that do work, per client
    keys: tuple[str, ...]
    limit: int  # how many permits, wherever permits are counted
    ttls: tuple[Micros, ...]
    request_timeout: Micros
    latency: Micros
    jitter: Micros
    longest_delay: Micros
    incident_gap: Micros
    fates: tuple[tuple[float, str], ...]  # cumulative: a request's fate by one throw
    incidents: tuple[str, ...]
    cancels: float
    preempts: float
    beats_per_second: float | None
    watch_late: Micros  # how late the watch of a keeper may be; then beats share a trip
    contention: bool  # everybody wants the same thing
    bundles: bool  # most want several keys for long, so that their beats can share a trip
    watched: bool  # most hold for long or only look, and replies may take longer than a ttl
    crowd: bool = False  # many callers of each client want the same thing, each for a moment
    patterns: bool = False  # everybody calls `once` or `lead`
    faults: tuple[str, ...] = field(default=())

    @property
    def longest_ttl(self) -> Micros:
        """The longest that a dead party can be in the way."""
        return max(self.ttls)

    @property
    def clock_reach(self) -> Micros:
        """How far ahead of the store's clock a client's upper bound for it can be: the
        longest trip that is not given up, the doubt of the clock, a carried reading, and a
        thread that stands still between its own clock and the request."""
        stall = self.longest_stall if self.preempts else 0
        return self.request_timeout * 101 // 100 + self.kind.doubt + 700_000 + stall

    @property
    def clock_lag(self) -> Micros:
        """How far behind the store's clock a client's lower bound for it can be: a reply may
        lie there while the client stands still."""
        return self.clock_reach + self.longest_stall

    @property
    def longest_stall(self) -> Micros:
        """For how long a client or a thread stands still at most."""
        return self.longest_ttl * 5 // 2


def make_plan(options: Options) -> Plan:
    """Draw the plan of a run. Options that are given win over what is drawn."""
    rng = stream(options.seed, _PLAN)
    kind = KINDS[rng.choice(_KIND_WEIGHTS)]
    clients, keys = rng.choice((2, 2, 3, 3, 4, 5, 6, 8)), rng.choice((1, 1, 2, 3))
    first_ttl = rng.randrange(len(TTLS))
    ttls = TTLS[first_ttl : first_ttl + rng.choice((1, 2))]
    swarm = {name: rng.choice((1, 2, 5)) for name in FAULTS if rng.random() < 0.5}
    jitter = rng.choice((1_000, 10_000, 60_000))
    plan = Plan(
        kind=KINDS[options.store] if options.store else kind,
        clients=options.clients or clients,
        workers=rng.choice((1, 1, 2)),
        keys=tuple("abcdefgh"[: options.keys or keys]),
        limit=rng.choice((2, 2, 3)),
        ttls=ttls,
        request_timeout=rng.choice(TIMEOUTS),
        latency=rng.choice((200, 1_000, 5_000)),
        jitter=jitter,
        longest_delay=rng.choice((max(ttls) // 4, max(ttls), 3 * max(ttls))),
        incident_gap=rng.choice((max(ttls) // 2, 2 * max(ttls))),
        fates=(),
        incidents=(),
        cancels=0.15,
        preempts=0.03,
        beats_per_second=rng.choice((None, None, None, 50.0)),
        watch_late=rng.choice((0, ttls[0] // 6)),
        contention=rng.random() < 0.4,
        bundles=rng.random() < 0.3,
        watched=rng.random() < 0.2,
    )
    if rng.random() < 0.3:
        plan.crowd, plan.bundles, plan.watched = True, False, False
        plan.workers, plan.clients = rng.choice((3, 4, 6)), options.clients or rng.choice((1, 2, 3))
        plan.keys, plan.ttls = plan.keys[:2], plan.ttls[:1]
    plan.patterns = not plan.crowd and rng.random() < 0.15
    if plan.bundles:
        plan.watch_late = ttls[0] // 6
        plan.keys = plan.keys if options.keys else tuple("abcdef")
    if plan.watched:
        plan.request_timeout = plan.longest_delay = 2 * plan.longest_ttl
        swarm["delay"] = 4
    on = {name: weight for name, weight in swarm.items() if name not in options.without}
    return _with_faults(plan, on)


_KIND_WEIGHTS: Final = (
    *("server", "server", "scripted", "observed", "observed", "seconds", "seconds"),
    *("patchy", "dated", "last-writer", "failover", "scripted-failover", "amending", "amending"),
)


def _with_faults(plan: Plan, on: dict[str, int]) -> Plan:
    if not plan.kind.replicated:
        on.pop("failover", None)
    fates, reached = [], 0.0
    for name in REQUEST_FAULTS:
        if name in on:
            reached += on[name] * 0.02
            fates.append((reached, name))
    plan.fates = tuple(fates)
    plan.incidents = tuple(name for name in INCIDENTS for _ in range(on.get(name, 0)))
    plan.cancels = (0.3 if plan.crowd else plan.cancels) if "cancel" in on else 0.0
    plan.preempts = plan.preempts if "preempt" in on else 0.0
    plan.jitter = plan.jitter if "reordering" in on else 0
    plan.faults = tuple(on)
    return plan
