"""Processes that share locks, and are killed, stopped and forked while they do.

    python -m tests.soak [URL] [--seconds 60] [--processes 6]

Each takes locks through clients that come and go, and writes down when it surely held which. In
the end all that is put side by side: nobody held what another one held, and fences grew. Without
a URL it is an SQLite file. `make soak` runs it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import holdfast
from holdfast import HoldfastError, Lease, Locks

KEYS = ("a", "b")
TTL_S = 1.0
MOST_CLIENTS = 4


class Held(NamedTuple):
    """That somebody surely held a lock, from when to when on the machine's clock."""

    key: str
    mode: str
    fence: int
    since: float
    until: float
    process: int


# --- what a process does --------------------------------------------------------------------


class Party:
    """One process, in which clients come and go."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._start()

    def _start(self) -> None:
        """At first, and in a forked child."""
        self._random = random.Random()
        self._clients = [self._connect()]
        self._diary = (self._folder / f"{os.getpid()}.jsonl").open("a", buffering=1)

    def _connect(self) -> Locks:
        return holdfast.connect(self._url, ttl=TTL_S)

    def run(self) -> None:
        """For ever."""
        while True:
            dice = self._random.random()
            if dice < 0.1 and len(self._clients) < MOST_CLIENTS:
                self._clients.append(self._connect())
            elif dice < 0.2 and len(self._clients) > 1:
                self._clients.pop(self._random.randrange(len(self._clients))).close()
            self._take(self._random.choice(self._clients))

    def _take(self, locks: Locks) -> None:
        chance = self._random
        try:
            lease = locks.acquire(
                chance.choice(KEYS),
                mode=chance.choice(["exclusive", "exclusive", "shared"]),
                timeout=chance.choice([0, 0.05, 1, 20]),
                fair=chance.choice([None, True, False]),
                keep=chance.random() < 0.9,
            )
        except HoldfastError:  # not in time, or the store was in trouble
            return
        self._hold(lease)
        if chance.random() < 0.02 and os.fork() == 0:
            self._start()
        elif chance.random() < 0.99:  # else it is forgotten, and runs out
            lease.release()

    def _hold(self, lease: Lease) -> None:
        since = until = time.monotonic()
        ends_at = since + self._random.choice([0, 0, 0.001, 0.01, 0.1])
        while (now := time.monotonic()) and lease.held:
            until = now  # it was ours a moment after that, and so at that time
            if now >= ends_at:
                break
            time.sleep(0.001)
        self._diary.write(json.dumps([lease.key, lease.mode, lease.fence, since, until]) + "\n")


# --- what is done to them -------------------------------------------------------------------


def foul(url: str, folder: Path, processes: int, seconds: float) -> None:
    """Let so many processes run, and kill and stop them at random."""
    parties = [_start(url, folder) for _ in range(processes)]
    ends_at = time.monotonic() + seconds
    try:
        while time.monotonic() < ends_at:
            time.sleep(random.uniform(0.05, 0.5))
            place, dice = random.randrange(processes), random.random()
            if dice < 0.15 or parties[place].poll() is not None:
                _signal(parties[place], signal.SIGKILL)
                parties[place].wait()
                parties[place] = _start(url, folder)
            elif dice < 0.3:
                _signal(parties[place], signal.SIGSTOP)
            else:
                _signal(parties[place], signal.SIGCONT)
    finally:
        for party in parties:
            _signal(party, signal.SIGKILL)
            party.wait()


def _start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.soak", url, "--party", str(folder)]
    return subprocess.Popen(command, start_new_session=True)


def _signal(party: subprocess.Popen[bytes], number: int) -> None:
    """To the process and those that it forked."""
    with suppress(ProcessLookupError):  # all of them are gone
        os.killpg(party.pid, number)


# --- what came of it ------------------------------------------------------------------------


def diaries(folder: Path) -> Iterator[Held]:
    """What all of them have written."""
    for diary in folder.glob("*.jsonl"):
        for line in diary.read_text().splitlines():
            try:
                key, mode, fence, since, until = json.loads(line)
            except ValueError:
                continue  # it was killed while it wrote
            yield Held(key, mode, fence, since, until, int(diary.stem))


def violations(held: Iterable[Held]) -> list[str]:
    """Who held what another one held, and fences that did not grow."""
    found = []
    by_key: dict[str, list[Held]] = {}
    for one in sorted(held, key=lambda one: one.since):
        by_key.setdefault(one.key, []).append(one)
    for all_of_key in by_key.values():
        at_once: list[Held] = []
        for one in all_of_key:
            at_once = [other for other in at_once if other.until > one.since]
            others = [o for o in at_once if "exclusive" in (o.mode, one.mode)]
            found += [f"at the same time:\n  {other}\n  {one}" for other in others]
            at_once.append(one)
        found += _disorder([one for one in all_of_key if one.mode == "exclusive"])
    return found


def _disorder(in_order: Sequence[Held]) -> list[str]:
    return [f"fences:\n  {a}\n  {b}" for a, b in pairwise(in_order) if b.fence <= a.fence]


def soak(url: str, processes: int, seconds: float) -> tuple[int, list[str]]:
    """How many locks were held, and what was wrong."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        foul(url, Path(folder), processes, seconds)
        held = list(diaries(Path(folder)))
    return len(held), violations(held)


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--party", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.party is not None:
        logging.disable(logging.CRITICAL)
        Party(asked.url, asked.party).run()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        url = asked.url or f"sqlite://{folder}/locks.db"
        locks, wrong = soak(url, asked.processes, asked.seconds)
    sys.stdout.write("".join(f"{one}\n" for one in wrong))
    sys.stdout.write(f"{locks:,} locks, {len(wrong)} violations\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
