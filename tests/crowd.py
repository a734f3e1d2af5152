"""A crowd on one lock: many processes, or many threads of one, that all want the same key.

    python -m tests.crowd [URL] [--processes 100 | --threads 300] [--seconds 40] [--hold-ms 20]

Each takes the lock, sleeps for the hold and frees it, again and again. Then: how many locks a
second there were (1 s / hold would be ideal), how many got none at all, the longest wait as a
multiple of the fair one (everybody else's hold), the largest share, and the processor time a lock.
Without a URL it is an SQLite file; `--store NAME` starts a server as the benchmarks do. With
`--idle` nobody frees the lock: what a process costs that only waits. With `--apart` no process can
wake another because they are on one machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import holdfast
from benchmarks.apart import be_apart
from benchmarks.sites import SITES
from holdfast import Locks

KEY = "crowd"
# Whoever asks a busy store within the last moment is told that there was no time to ask it.
OVER_S = 0.1
ROOT = Path(__file__).parent.parent


class Crowd(NamedTuple):
    """Who takes part, and what each does."""

    processes: int = 100
    threads: int = 1
    seconds: float = 40.0
    hold_ms: float = 20.0
    rest_ms: float = 0.0
    idle: bool = False
    apart: bool = False


class Report(NamedTuple):
    """What one of the crowd did."""

    locks: int
    longest_s: float  # of its waits, also of one that the end cut off
    cpu_s: float


class Result(NamedTuple):
    """What all of them did together."""

    per_s: float
    unserved: int
    longest_of_fair: float
    share: float
    cpu_us_a_lock: float
    cpu_percent_each: float

    def __str__(self) -> str:
        return (
            f"{self.per_s:.1f} locks a second, {self.unserved} unserved, longest wait "
            f"{self.longest_of_fair:.2f}x the fair one, largest share {self.share:.2f}x the "
            f"median, {self.cpu_us_a_lock:.0f} us CPU a lock, {self.cpu_percent_each:.2f} % of a "
            f"core each\n"
        )


# --- one of the crowd ---------------------------------------------------------------------------


def take_turns(locks: Locks, ends_at: float, hold_s: float, rest_s: float) -> Report:
    """Take the lock again and again until the time is over."""
    got, longest, cpu = 0, 0.0, time.thread_time()
    while (left := ends_at - time.time()) > 0:
        since = time.monotonic()
        try:
            lease = locks.acquire(KEY, timeout=left, ttl=30)
        except (holdfast.AcquireTimeout, holdfast.Unavailable, holdfast.OutcomeUnknown):
            if time.time() < ends_at - OVER_S:
                raise
            longest = max(longest, time.monotonic() - since)
            break
        longest = max(longest, time.monotonic() - since)
        time.sleep(hold_s)
        got += time.time() < ends_at
        lease.release()
        time.sleep(rest_s)
    return Report(got, longest, time.thread_time() - cpu)


def work(args: argparse.Namespace) -> list[Report]:
    """A process of the crowd."""
    logging.disable(logging.WARNING)
    with holdfast.connect(args.url) as locks:
        locks.show(KEY)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        return take_part(locks, crowd_of(args), float(sys.stdin.readline()))


def take_part(locks: Locks, crowd: Crowd, ends_at: float) -> list[Report]:
    """Take turns in one thread or many. The processor time is the process's."""
    reports: list[Report] = []
    if crowd.apart:
        be_apart()
    begun = time.process_time()

    def run() -> None:
        reports.append(take_turns(locks, ends_at, crowd.hold_ms / 1000, crowd.rest_ms / 1000))

    threads = [threading.Thread(target=run) for _ in range(crowd.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_s = (time.process_time() - begun) / len(reports)
    return [report._replace(cpu_s=cpu_s) for report in reports]


# --- all of them --------------------------------------------------------------------------------


def run_crowd(url: str, crowd: Crowd) -> Result:
    """Start the crowd, and put together what its processes say."""
    command = [sys.executable, "-m", "tests.crowd", url, "--worker", f"--threads={crowd.threads}"]
    command += [f"--hold-ms={crowd.hold_ms}", f"--rest-ms={crowd.rest_ms}"]
    command += ["--apart"] if crowd.apart else []
    with prepared(url, crowd):
        outputs = _outputs(command, crowd.processes, crowd.seconds)
    reports = [Report(*one) for output in outputs for one in json.loads(output)]
    return summed_up(reports, crowd.seconds, crowd.hold_ms / 1000)


@contextmanager
def prepared(url: str, crowd: Crowd) -> Iterator[None]:
    """A store to come to; and if all of them shall only wait, somebody who holds the lock."""
    with holdfast.connect(url) as locks:
        locks.setup()
        held = locks.acquire(KEY, ttl=3 * crowd.seconds + 60) if crowd.idle else nullcontext()
        with held:
            yield


def _outputs(command: Sequence[str], processes: int, seconds: float) -> list[bytes]:
    """Start the processes, let them begin together, and return what they write."""
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) for _ in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    begin = f"{time.time() + seconds}\n".encode()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(begin)
        worker.stdin.flush()
    return [worker.communicate()[0] for worker in workers]


def summed_up(reports: Sequence[Report], seconds: float, hold_s: float) -> Result:
    """Returns the figures of a whole run."""
    counts = [report.locks for report in reports]
    locks, cpu_s = sum(counts), sum(report.cpu_s for report in reports)
    return Result(
        per_s=locks / seconds,
        unserved=counts.count(0),
        longest_of_fair=max(report.longest_s for report in reports) / (hold_s * len(reports)),
        share=max(counts) / max(1, statistics.median(counts)),
        cpu_us_a_lock=1e6 * cpu_s / max(1, locks),
        cpu_percent_each=100 * cpu_s / len(reports) / seconds,
    )


def crowd_of(args: argparse.Namespace) -> Crowd:
    """What the command line says."""
    return Crowd(*(getattr(args, name) for name in Crowd._fields))


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crowd", description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--hold-ms", type=float, default=20)
    parser.add_argument("--rest-ms", type=float, default=0, help="between two turns")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        json.dump([list(report) for report in work(args)], sys.stdout)
        return
    crowd = crowd_of(args)
    if args.url:
        result = run_crowd(args.url, crowd)
    else:
        with SITES[args.store]() as place:
            result = run_crowd(place.url, crowd)
    sys.stdout.write(str(result))


if __name__ == "__main__":
    main()
