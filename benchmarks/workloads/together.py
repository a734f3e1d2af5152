"""Many threads or tasks of one process that want the same locks: a web server, a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import AsyncPeer, Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.workloads.parallel import on_a_loop

THREADS, THREAD_KEYS = 64, 8
TASKS, TASK_KEYS = 200, 20
WARM_UP = 0.3  # of a turn


def _columns(counted: str) -> tuple[Column, ...]:
    return (
        Column("per_s", "locks a second", "more", digits=0),
        Column("cpu_us", "CPU of the client, µs"),
        Column("requests", "requests a lock", digits=2, of=counted),
        Column("share", "largest share ÷ median"),
        Column("unserved", "unserved", digits=0),
    )


class Together(Workload):
    """What threads and tasks have in common."""

    about = (
        "All share one client of each library. Each of them takes one of the locks, frees it and "
        'takes it again. "Unserved" is how many of them got no lock in the whole turn. The '
        "requests were counted in the run with 0.5 ms of round trip, below. With `pass_on=False` "
        "no lock is passed on [inside the process](howto.md#many-threads-or-tasks-of-one-process)."
    )
    columns = _columns("")

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.together_rounds


class ThreadsTogether(Together):
    """64 threads over 8 keys."""

    name = "threads-together"
    title = f"{THREADS} threads of one process on {THREAD_KEYS} keys"
    columns = _columns("near-threads-together")

    def takes(self, contestant: type[Contestant]) -> bool:
        shown = contestant.prominent or contestant.only == self.name
        return super().takes(contestant) and shown

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with entrant.peer() as peer, ThreadPoolExecutor(THREADS) as pool:

            def measure(seconds: float) -> Figures:
                start = Barrier(THREADS)  # or those that begin first have the locks to themselves

                def turns(number: int) -> int:
                    start.wait()
                    return _locks(peer, number, time.perf_counter() + seconds)

                return _figures(lambda: list(pool.map(turns, range(THREADS))))

            measure(scale.together_s * WARM_UP)
            yield lambda: measure(scale.together_s)


class TasksTogether(Together):
    """200 tasks over 20 keys."""

    name = "tasks-together"
    title = f"{TASKS} tasks of one process on {TASK_KEYS} keys"
    columns = _columns("near-tasks-together")

    def takes(self, contestant: type[Contestant]) -> bool:
        return issubclass(contestant, AsyncPeer)

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with on_a_loop(entrant) as (runner, peer):

            def measure(seconds: float) -> Figures:
                return _figures(lambda: runner.run(_tasks(peer, seconds)))

            measure(scale.together_s * WARM_UP)
            yield lambda: measure(scale.together_s)


def _locks(peer: Peer, number: int, ends_at: float) -> int:
    count = 0
    while time.perf_counter() < ends_at:
        with peer.lock(f"together/{number % THREAD_KEYS}"):
            count += 1
    return count


async def _tasks(peer: AsyncPeer, seconds: float) -> list[int]:
    ends_at = time.perf_counter() + seconds

    async def turns(number: int) -> int:
        count = 0
        while time.perf_counter() < ends_at:
            async with peer.lock(f"together/{number % TASK_KEYS}"):
                count += 1
            await asyncio.sleep(0)
        return count

    return list(await asyncio.gather(*(turns(number) for number in range(TASKS))))


def _figures(run: Callable[[], list[int]]) -> Figures:
    wall, cpu = time.perf_counter(), time.process_time()
    counts = sorted(run())
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    locks = max(1, sum(counts))
    return {
        "locks": float(locks),
        "per_s": locks / wall,
        "cpu_us": cpu / locks * 1e6,
        "share": counts[-1] / max(1, counts[len(counts) // 2]),
        "unserved": float(counts.count(0)),
    }
