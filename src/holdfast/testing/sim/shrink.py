"""Make a failing history short: leave out whatever is not needed to break the same rule.

Each operation and each incident draws from a source of chance of its own (`clocks.stream`),
so leaving one out changes the others only by what it did to them. In this order: whole
kinds of fault, then clients and keys, then operations and incidents one by one, and again
until nothing more can go. Every run heals where the rule broke last: most of those that leave out
too much would go on for hundreds of effects. A run in which the rule breaks later is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.world import World

MOST_RUNS = 1500


class Shrinker:
    """Shrinks one failing run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.runs = 0
        world = World(options)
        violation = world.run()
        if violation is None:
            raise ValueError("This run breaks no rule.")
        self.rule = violation.rule
        self.effects = world.effects

    def shrink(self) -> Options:
        """The shortest run found that breaks the same rule."""
        shorter = True
        while shorter and self.runs < MOST_RUNS:
            self._try(self.options.but(steps=self.effects))
            kept = [self._try(candidate) for candidate in self._candidates()]
            shorter = any(kept)
        return self.options

    def _candidates(self) -> Iterator[Options]:
        plan = self._world(self.options).plan
        yield self.options.but(store=plan.kind.name)
        for fault in plan.faults:
            if fault not in self.options.without:
                yield self.options.but(without=(*self.options.without, fault))
        for clients in range(2, plan.clients):
            yield self.options.but(clients=clients)
        for keys in range(1, len(plan.keys)):
            yield self.options.but(keys=keys)
        for label in self._labels():
            yield self.options.but(skip=(*self.options.skip, label))

    def _labels(self) -> list[str]:
        """The operations and incidents of the present run, the last ones first."""
        log = self._world(self.options).log or []
        labels = [str(detail).split()[0] for _, _, what, detail in log if what == "starts"]
        labels += [what.split()[0] for _, _, what, _ in log if what[:1] == "n" and " " in what]
        return list(dict.fromkeys(reversed(labels)))

    def _try(self, candidate: Options) -> bool:
        """Keep a candidate if it breaks the same rule as early (whatever else may have gone
        before)."""
        if candidate == self.options or self.runs >= MOST_RUNS:
            return False
        self.runs += 1
        world = World(candidate)
        violation = world.run()
        if violation is None or violation.rule != self.rule or world.effects > self.effects:
            return False
        self.options, self.effects = candidate, world.effects
        return True

    def _world(self, options: Options) -> World:
        world = World(options, record=True)
        world.run()
        return world


def shrink(options: Options) -> Options:
    """The shortest run found that breaks the same rule as this one."""
    return Shrinker(options).shrink()
