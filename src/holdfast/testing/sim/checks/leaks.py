"""Rule 7: nothing leaks.

When a call fails, and could take back what it had left, nothing of it is in the store. (A
write that arrives after its sender has given up on it is taken back by the ttl.) And when
everybody is gone and the ttl has passed, a newcomer gets every lock.
"""

from __future__ import annotations

from holdfast.core import rules
from holdfast.core.acquiring import Terms, acquire_steps
from holdfast.testing.sim.calls import claim, enter
from holdfast.testing.sim.checker import Checker
from holdfast.testing.sim.checks.progress import bound
from holdfast.testing.sim.clocks import stream
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import Process, Script

_PROBE = 41


class Leaks(Checker):
    """Looks for what was left behind."""

    rule = "nothing-leaks"

    def op_done(self, op: Op) -> None:
        world = self.world
        if op.outcome is None or not op.cleaned or not world.plan.kind.compares:
            return
        for attempt in op.attempts:
            record = world.store.record(attempt.key)
            for token in sorted(op.tokens):
                left = rules.find(record.holders, token) or rules.find(record.queue, token)
                if left and token not in world.ledger.ghosts and op.kind in ("hold", "all"):
                    raise self.broken(f"{op} failed ({op.outcome!r}), and left {left}")

    def finished(self) -> None:
        world = self.world
        for client in world.clients:
            client.crash()
        self._open = len(world.plan.keys)
        for number, key in enumerate(world.plan.keys):
            self._probe(number, key)
        ends_at = max(world.t, world.store.down_until) + bound(world.plan, 0)
        world.run_while(lambda: self._open > 0 and world.t <= ends_at)
        if self._open:
            records = {key: world.store.record(key) for key in world.plan.keys}
            raise self.broken(f"everybody is gone, and yet not all is free: {records}")

    def _probe(self, number: int, key: str) -> None:
        world = self.world
        client, rng = world.newcomer(), stream(world.options.seed, _PROBE, number)
        op = Op(client, f"newcomer{number}", "probe", rng, world.t)

        def script() -> Script[None]:
            attempt = claim(op, key, world.plan.longest_ttl, "exclusive", None)
            steps = acquire_steps(client.observations, attempt, Terms(), client.now())
            yield from enter(client, op, attempt, steps)

        client.start(op, script(), self._got)

    def _got(self, process: Process) -> None:
        if process.op.outcome is None:
            self._open -= 1
