"""PostgreSQL and MariaDB, started here: round trips, times and hand-overs.

`python -m benchmarks sql`. A hand-over is the time from a release to the moment at which a
waiter of another client has the lock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import create_engine

import holdfast
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PgBouncer, PostgreSQL
from tests.engines.proxy import Proxy

CALLS, HAND_OVERS = 300, 30


def main() -> None:
    """Print one table per server."""
    with PostgreSQL() as server:
        assert isinstance(server, PostgreSQL)
        report("PostgreSQL", server.url(), server.port, server.url("postgresql+psycopg"))
        with PgBouncer(server) as pooler:
            assert isinstance(pooler, PgBouncer)
            print(f"| hand-over behind PgBouncer | {hand_over_ms(pooler.url('wakeup=poll'))} |\n")
    with MariaDB() as server:
        assert isinstance(server, MariaDB)
        report("MariaDB", server.url(), server.port, server.url("mysql+pymysql"))
        print()


def report(name: str, url: str, port: int, driver_url: str) -> None:
    """One server's table."""
    print(f"### {name}\n\n| | |\n|---|---|")
    with Proxy(port) as proxy:
        direct = url.replace(f":{port}/", f":{proxy.port}/")
        with holdfast.connect(direct, ttl=600) as locks:
            print(f"| round trips: cold acquire, release, warm acquire | {trips(locks, proxy)} |")
        pool = create_engine(driver_url.replace(f":{port}/", f":{proxy.port}/"))
        with holdfast.connect(pool, ttl=600) as locks:
            print(f"| the same on an application's engine | {trips(locks, proxy)} |")
        pool.dispose()
    with holdfast.connect(url, ttl=600) as locks:
        print(f"| warm acquire and release | {per_call_ms(lambda: cycle(locks, 'warm'))} |")
        names = iter(range(10**9))
        cold = per_call_ms(lambda: cycle(locks, f"cold/{next(names)}"))
        print(f"| cold acquire and release | {cold} |")
    print(f"| hand-over | {hand_over_ms(url)} |")


def cycle(locks: holdfast.Locks, key: str) -> None:
    """Acquire and release."""
    locks.acquire(key).release()


def trips(locks: holdfast.Locks, proxy: Proxy) -> str:
    """Messages to the server, counted on the wire."""
    cycle(locks, "warm-up")
    counts = []
    for _ in range(2):
        before = proxy.requests
        lease = locks.acquire("counted")
        counts.append(proxy.requests - before)
        before = proxy.requests
        lease.release()
        counts.append(proxy.requests - before)
    locks.evict("counted")
    return f"{counts[0]}, {counts[1]}, {counts[2]}"


def per_call_ms(call: Callable[[], object]) -> str:
    """The median."""
    took = []
    for _ in range(CALLS):
        started = time.perf_counter()
        call()
        took.append(time.perf_counter() - started)
    return f"{statistics.median(took) * 1e3:.2f} ms"


def hand_over_ms(url: str) -> str:
    """Median and worst."""
    took = []
    with holdfast.connect(url) as a, holdfast.connect(url) as b, ThreadPoolExecutor(1) as pool:
        for _ in range(HAND_OVERS):
            lease = a.acquire("handed", ttl=60)
            waiting = pool.submit(lambda: (b.acquire("handed", ttl=60), time.perf_counter()))
            time.sleep(0.3)
            started = time.perf_counter()
            lease.release()
            heir, got = waiting.result(30)
            took.append(got - started)
            heir.release()
    return f"median {statistics.median(took) * 1e3:.0f} ms, worst {max(took) * 1e3:.0f} ms"
