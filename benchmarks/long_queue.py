"""What a claim costs Redis while many wait for the same lock.

    python -m benchmarks.long_queue [--waiting 300] [--claims 200]

The figure is the server's own, by its statistics of commands: the median time of a script. A claim
takes a place at the end of the queue, and gives it up again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any
from uuid import uuid4

from holdfast.core.commands import Claim, Command, Free
from holdfast.core.records import SECOND
from holdfast.core.steps import BEAT_BYTES
from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisServer, client

KEY, TTL = "long", 600 * SECOND


def claim() -> Claim:
    """Somebody who wants the lock, and takes a place."""
    return Claim(uuid4().hex, "me", "exclusive", TTL, queue=True, patience=TTL)


def apply(store: Any, command: Command) -> None:
    """Run it in the server."""
    store.apply(KEY, command, uuid4().hex[: 2 * BEAT_BYTES])


def measured_us(waiting: int, claims: int) -> dict[str, float]:
    """How long a claim and a release of a place take the server, in microseconds."""
    with RedisServer() as server, client(server.port) as redis:
        store: Store = open_store(server.url)
        for _ in range(waiting + 1):  # the first one holds it
            apply(store, claim())
        late = [claim() for _ in range(claims)]
        found: dict[str, list[float]] = {"a claim": [], "giving it up": []}
        for one in late:
            commands: dict[str, Command] = {"a claim": one, "giving it up": Free(one.token)}
            for what, command in commands.items():
                redis.config_resetstat()
                apply(store, command)
                found[what].append(_script_us(redis))
        store.close()
    return {what: statistics.median(values) for what, values in found.items()}


def _script_us(redis: Any) -> float:
    stats = redis.info("commandstats")
    return float(sum(stats[name]["usec"] for name in stats if "eval" in name or "fcall" in name))


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_queue", description=__doc__)
    parser.add_argument("--waiting", type=int, default=300)
    parser.add_argument("--claims", type=int, default=200)
    options = parser.parse_args(arguments)
    for what, micros in measured_us(options.waiting, options.claims).items():
        print(f"{options.waiting} waiting, {what}: {micros / 1000:.2f} ms of the server")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
