"""The core and the SQLite store: beside filelock, and beside SQLite alone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

import holdfast
from benchmarks.harness import Contestant, race, table


def main() -> None:
    """Print all tables of the foundation."""
    with tempfile.TemporaryDirectory() as folder:
        print(pairs(Path(folder)), "\n")
        print(hand_over(Path(folder)), "\n")
    print(kept(5_000, beats=10), "\n")
    print(import_time())


def pairs(folder: Path) -> str:
    """Acquire and release one lock, without contention."""
    with (
        holdfast.connect(f"sqlite://{folder}/locks.db") as ours,
        holdfast.connect("memory://bench") as memory,
        _bare_swaps(folder / "bare.db") as bare,
    ):
        file_lock = filelock.FileLock(folder / "file.lock")
        peer = Contestant("filelock.FileLock", lambda: _pair(file_lock))
        contestants = [
            peer,
            Contestant("holdfast on sqlite", lambda: _pair(ours.acquire("bench"))),
            Contestant("two bare SQLite swaps (the floor)", bare),
            Contestant("holdfast on memory (the core's share)", lambda: _pair(memory.acquire("b"))),
        ]
        race(contestants, calls=1000)
    return table("An uncontended acquire and release", contestants, peer)


def _pair(lock: object) -> None:
    with lock:  # type: ignore[attr-defined]
        pass


@contextmanager
def _bare_swaps(path: Path) -> Iterator[Callable[[], None]]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(
        "CREATE TABLE t (key TEXT PRIMARY KEY, version INT, record TEXT) WITHOUT ROWID"
    )
    connection.execute("INSERT INTO t VALUES ('k', 0, '')")
    version, record = 0, "x" * 250

    def swap_twice() -> None:
        nonlocal version
        for _ in range(2):
            statement = "UPDATE t SET version = ?, record = ? WHERE key = ? AND version = ?"
            connection.execute(statement, (version + 1, record, "k", version))
            version += 1

    yield swap_twice
    connection.close()


HOLDER = """
import sys, time, holdfast
locks = holdfast.connect(sys.argv[1])
for line in sys.stdin:
    lease = locks.acquire("bench")
    print("held", flush=True)
    sys.stdin.readline()
    time.sleep(0.05)
    lease.release()
    print(time.monotonic(), flush=True)
"""


def hand_over(folder: Path, times: int = 40) -> str:
    """From the release in one process to the waiter's return in another."""
    url = f"sqlite://{folder}/handover.db"
    latencies = []
    with (
        holdfast.connect(url) as locks,
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        ) as holder,
    ):  # fmt: skip
        assert holder.stdin is not None
        assert holder.stdout is not None
        for _ in range(times):
            print(file=holder.stdin)
            holder.stdout.readline()
            print(file=holder.stdin)
            with locks.acquire("bench"):
                got = time.monotonic()
            latencies.append(got - float(holder.stdout.readline()))
        holder.stdin.close()
    latencies.sort()
    median, worst = latencies[times // 2] * 1e3, latencies[-1] * 1e3
    return f"Hand-over between processes on SQLite: median {median:.1f} ms, worst {worst:.1f} ms"


def kept(leases: int, beats: int) -> str:
    """Many leases kept alive by one client on memory; how many were lost."""
    ttl = 6.0
    locks = holdfast.connect("memory://kept", ttl=ttl)
    started_cpu = time.process_time()
    held = [locks.acquire(f"lease-{number}") for number in range(leases)]
    acquired_cpu = time.process_time()
    time.sleep(beats * ttl / 3)
    kept_cpu = time.process_time()
    alive = sum(lease.held for lease in held)
    locks.close()
    share = (kept_cpu - acquired_cpu) / (beats * ttl / 3)
    return (
        f"{leases} leases kept for {beats} beats of {ttl / 3:g} s: {leases - alive} lost, "
        f"{share:.0%} of one core (acquiring them took {acquired_cpu - started_cpu:.2f} s)"
    )


def import_time() -> str:
    """`import holdfast` in a new interpreter, the best of ten."""
    code = "import time; t = time.perf_counter(); import holdfast; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(10)
    ]
    return f"import holdfast: {min(runs) * 1e3:.0f} ms"
