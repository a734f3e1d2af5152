"""The Redis store beside redis-py's own lock, python-redis-lock and pottery.

Needs a `redis-server` on this machine; starts one of its own on a free port. The other
libraries are measured if they are installed: pip install python-redis-lock pottery.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import redis
import redis.asyncio

import holdfast
from benchmarks.harness import Contestant, race, table
from holdfast import aio
from tests.engines.redis import RedisServer

TASKS, TURNS = 64, 10
LEASES, TTL_S, WATCHED_S = 10_000, 30.0, 12.0


def main() -> None:
    """Print all tables of the Redis store."""
    if not RedisServer.installed():
        print("Redis: there is no redis-server here.")
        return
    with RedisServer() as server:
        assert isinstance(server, RedisServer)
        print(pairs(server), "\n")
        print(asyncio.run(concurrent_pairs(server)), "\n")
        print(hand_over(server), "\n")
        print(kept(server))


# --- one after the other --------------------------------------------------------------------


def pairs(server: RedisServer) -> str:
    """Acquire and release one lock, without contention."""
    client = redis.Redis(port=server.port)
    with closing(holdfast.connect(server.url)) as ours:
        peer = Contestant("redis.lock.Lock", lambda: _pair(client.lock("bench", timeout=30)))
        contestants = [peer, Contestant("holdfast", lambda: _pair(ours.acquire("bench")))]
        contestants += _others(client)
        race(contestants, calls=200, rounds=15)
        cpu = [_cpu_micros(contestant.call) for contestant in contestants[:2]]
    client.close()
    text = table("Redis: an uncontended acquire and release", contestants, peer)
    return f"{text}\n\n{_cpu_line(*cpu)}"


def _cpu_micros(call: Callable[[], object], calls: int = 300, rounds: int = 7) -> float:
    """The processor time of this process for a call, which a busy machine does not inflate
    as much as it does the time on the wall."""
    found = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(calls):
            call()
        found.append((time.process_time() - started) / calls * 1e6)
    return min(found)


def _cpu_line(peer: float, mine: float) -> str:
    return (
        f"Processor time of the client for a pair: redis-py {peer:.0f} µs, holdfast {mine:.0f} µs "
        f"(ratio {peer / mine:.1f})."
    )


def _pair(lock: Any) -> None:
    with lock:
        pass


def _others(client: Any) -> list[Contestant]:
    found = []
    redis_lock, pottery = _module("redis_lock"), _module("pottery")
    if redis_lock is not None:
        call = lambda: _pair(redis_lock.Lock(client, "prl", expire=30))  # noqa: E731
        found.append(Contestant("python-redis-lock", call))
    if pottery is not None:
        call = lambda: _pair(  # noqa: E731
            pottery.Redlock(key="pottery", masters={client}, auto_release_time=30)
        )
        found.append(Contestant("pottery.Redlock", call))
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# --- many at once ---------------------------------------------------------------------------


async def concurrent_pairs(server: RedisServer) -> str:
    """64 coroutines, each with a key of its own."""
    theirs = redis.asyncio.Redis(port=server.port)
    ours = aio.connect(server.url)

    async def ours_pair(number: int) -> None:
        async with ours.acquire(f"b{number}"):
            pass

    async def their_pair(number: int) -> None:
        async with theirs.lock(f"r{number}", timeout=30):
            pass

    peer, mine = Contestant("redis.asyncio.lock.Lock", int), Contestant("holdfast.aio", int)
    cpu: dict[str, list[float]] = {peer.name: [], mine.name: []}
    for turn in range(17):
        for contestant, pair in ((peer, their_pair), (mine, ours_pair)):
            started = time.process_time()
            took = await _all_at_once(pair)
            if turn > 1:
                contestant.rounds.append(took)
                cpu[contestant.name].append((time.process_time() - started) / TASKS / TURNS * 1e6)
    await ours.close()
    await theirs.aclose()
    text = table(f"Redis: {TASKS} coroutines on {TASKS} keys, a pair", [peer, mine], peer)
    return f"{text}\n\n{_cpu_line(min(cpu[peer.name]), min(cpu[mine.name]))}"


async def _all_at_once(pair: Callable[[int], Awaitable[None]]) -> float:
    async def turns(number: int) -> None:
        for _ in range(TURNS):
            await pair(number)

    started = time.perf_counter()
    await asyncio.gather(*(turns(number) for number in range(TASKS)))
    return (time.perf_counter() - started) / TASKS / TURNS


# --- from hand to hand ----------------------------------------------------------------------

WAITER = """
import sys, time, holdfast, redis
kind, url, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
locks, client = holdfast.connect(url), redis.Redis.from_url(url)
for _ in range(times):
    sys.stdin.readline()
    print("waiting", flush=True)
    lock = locks.acquire("hand") if kind == "holdfast" else client.lock("hand", timeout=30)
    if kind != "holdfast":
        lock.acquire()
    print(time.monotonic_ns(), flush=True)
    lock.release()
    print("released", flush=True)
"""


def hand_over(server: RedisServer, times: int = 25) -> str:
    """From the release in one process to the return of a waiter in another."""
    client = redis.Redis(port=server.port)
    with closing(holdfast.connect(server.url)) as ours:
        peer, mine = Contestant("redis.lock.Lock", int), Contestant("holdfast", int)
        lock = client.lock("hand", timeout=30)
        takers: tuple[tuple[Contestant, str, Callable[[], Any]], ...] = (
            (peer, "redis", lambda: lock if lock.acquire() else None),
            (mine, "holdfast", lambda: ours.acquire("hand")),
        )
        for contestant, kind, take in takers:
            contestant.rounds += _hand_overs(server.url, kind, take, times)
    client.close()
    text = table("Redis: hand-over, from release to the waiter's return", [peer, mine], peer)
    worst = max(mine.rounds) * 1000
    return f"{text}\n\nholdfast: median {mine.micros / 1000:.2f} ms, worst {worst:.2f} ms."


def _hand_overs(url: str, kind: str, take: Callable[[], Any], times: int) -> list[float]:
    command = [sys.executable, "-c", WAITER, kind, url, str(times)]
    waiter = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    assert waiter.stdin is not None
    assert waiter.stdout is not None
    found = []
    for number in range(times):
        held = take()
        waiter.stdin.write("go\n")
        waiter.stdin.flush()
        waiter.stdout.readline()
        time.sleep(0.15 + 0.1 * number / times)  # any phase of a poll is as likely
        released = time.monotonic_ns()
        held.release()
        found.append((int(waiter.stdout.readline()) - released) / 1e9)
        waiter.stdout.readline()
    waiter.stdin.close()
    waiter.wait(10)
    waiter.stdout.close()
    return found


# --- kept alive -----------------------------------------------------------------------------


def kept(server: RedisServer) -> str:
    """The share of a core that keeping many leases alive takes."""
    with closing(holdfast.connect(server.url, ttl=TTL_S)) as locks:
        leases = [locks.acquire(f"kept{number}") for number in range(LEASES)]
        time.sleep(TTL_S / 3)
        gc.collect()
        shares = []
        for _ in range(3):
            cpu, wall = time.process_time(), time.monotonic()
            time.sleep(WATCHED_S / 3)
            shares.append((time.process_time() - cpu) / (time.monotonic() - wall))
        lost = sum(not lease.held for lease in leases)
        for lease in leases:
            lease.release()
    return (
        f"### Redis: {LEASES:,} leases kept alive by one client at ttl {TTL_S:g} s\n\n"
        f"{statistics.median(shares):.1%} of one core; {lost} were lost."
    )


if __name__ == "__main__":
    import logging

    logging.disable()
    main()
