"""Many at once in one process, each on a key of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import AsyncPeer, Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.workloads.pair import calls_for

THREADS, TASKS, WARM_UP = 16, 64, 3
TOGETHER = (
    "Nobody waits for a lock. The time of a pair is the time of all of them divided by their "
    "pairs, and not how long one of them takes."
)


class Parallel(Workload):
    """What threads and coroutines have in common."""

    quick = False
    columns = (
        Column("wall_us", "µs a pair"),
        Column("per_s", "pairs a second", "more", digits=0),
        Column("cpu_us", "CPU of the client, µs"),
    )
    at_once: int

    def rounds(self, scale: Scale, size: int) -> int:
        return max(1, scale.rounds // 2)

    def turns(self, scale: Scale, measure: Callable[[int], Figures]) -> int:
        """How many pairs each of them makes in a turn."""
        measure(WARM_UP)  # so that all have made their connections
        each = calls_for(scale.turn_s, lambda: measure(1)) // self.at_once
        return max(1, each)


class Threads(Parallel):
    """16 threads with one client."""

    name = "threads"
    title = f"{THREADS} threads on {THREADS} keys"
    about = f"One client of each library, shared by the threads of a process. {TOGETHER}"
    at_once = THREADS

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with entrant.peer() as peer, ThreadPoolExecutor(THREADS) as pool:

            def measure(each: int) -> Figures:
                with_key = [f"thread/{number}" for number in range(THREADS)]
                return _timed(
                    lambda: list(pool.map(lambda key: _pairs(peer, key, each), with_key)),
                    THREADS * each,
                )

            each = self.turns(scale, measure)
            yield lambda: measure(each)


class Coroutines(Parallel):
    """64 tasks with one client."""

    name = "coroutines"
    title = f"{TASKS} coroutines on {TASKS} keys"
    about = f"One asyncio client of each library, shared by the tasks of an event loop. {TOGETHER}"
    at_once = TASKS

    def takes(self, contestant: type[Contestant]) -> bool:
        return issubclass(contestant, AsyncPeer)

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with on_a_loop(entrant) as (runner, peer):

            def measure(each: int) -> Figures:
                return _timed(lambda: runner.run(_all_at_once(peer, each)), TASKS * each)

            each = self.turns(scale, measure)
            yield lambda: measure(each)


@contextmanager
def on_a_loop(entrant: Entrant) -> Iterator[tuple[asyncio.Runner, AsyncPeer]]:
    """An event loop, and the entrant's peer that is open on it."""
    with asyncio.Runner() as runner:
        opened = entrant.async_peer()
        peer = runner.run(opened.__aenter__())
        try:
            yield runner, peer
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _pairs(peer: Peer, key: str, each: int) -> None:
    for _ in range(each):
        with peer.lock(key):
            pass


async def _all_at_once(peer: AsyncPeer, each: int) -> None:
    async def turns(key: str) -> None:
        for _ in range(each):
            async with peer.lock(key):
                pass

    await asyncio.gather(*(turns(f"task/{number}") for number in range(TASKS)))


def _timed(call: Callable[[], object], pairs: int) -> Figures:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"wall_us": wall / pairs * 1e6, "per_s": pairs / wall, "cpu_us": cpu / pairs * 1e6}
