"""Processes that share locks, and are killed, stopped and forked while they do.

    python -m tests.soak [URL] [--seconds 60] [--processes 6]
    python -m tests.soak --trouble redis | postgresql | mysql | dynamodb

Each takes locks through clients that come and go, in threads or in tasks that are cancelled, and
writes down when it surely held which. In the end all that is put side by side: nobody held what
another one held, fences grew, and nobody died of an error. Without a URL it is an SQLite file.
With `--trouble` it is a server that crashes, freezes and is cut off meanwhile; when that is over,
everybody gets locks again. `make soak` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast import HoldfastError, Lease, Locks, aio

Trouble = Callable[[], None]

KEYS = ("a", "b")
TTL_S = 1.0
MOST_CLIENTS = 4
TASKS = 3
# For how long all have to get a lock once a server's trouble is over: longer than any of them
# waits for an answer that was lost, and then for its turn.
PEACE_S = 30.0


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
        self._clients: list[Any] = []
        self._start()

    def _start(self) -> None:
        """At first, and in a forked child."""
        self._random = random.Random()
        self._clients.clear()
        self._diary = (self._folder / f"{os.getpid()}.jsonl").open("a", buffering=1)

    def _client(self, connect: Callable[..., Any]) -> tuple[Any, Any]:
        """One to go on with, and at times one to close first."""
        dice, clients = self._random.random(), self._clients
        if not clients or (dice < 0.1 and len(clients) < MOST_CLIENTS):
            clients.append(connect(self._url, ttl=TTL_S))
        leaves = dice > 0.9 and len(clients) > 1
        gone = clients.pop(self._random.randrange(len(clients))) if leaves else None
        return self._random.choice(clients), gone

    def _terms(self) -> dict[str, Any]:
        chance = self._random
        return {
            "key": chance.choice(KEYS),
            "mode": chance.choice(["exclusive", "exclusive", "shared"]),
            "timeout": chance.choice([0, 0.05, 1, 20]),
            "fair": chance.choice([None, True, False]),
            "keep": chance.random() < 0.9,
        }

    def _spans(self) -> tuple[float, float]:
        """It is held from now on, and until then."""
        now = time.monotonic()
        return now, now + self._random.choice([0, 0, 0.001, 0.01, 0.1])

    def _note(self, lease: Lease | aio.Lease, since: float, until: float) -> None:
        self._diary.write(json.dumps([lease.key, lease.mode, lease.fence, since, until]) + "\n")

    def run(self) -> None:
        """For ever."""
        while True:
            locks, gone = self._client(holdfast.connect)
            if gone is not None:
                gone.close()
            self._take(locks)

    def _take(self, locks: Locks) -> None:
        chance = self._random
        try:
            lease = locks.acquire(**self._terms())
        except HoldfastError:  # not in time, or the store was in trouble
            return
        self._hold(lease)
        if chance.random() < 0.02 and os.fork() == 0:
            self._start()
        elif chance.random() < 0.99:  # else it is forgotten, and runs out
            with suppress(HoldfastError):
                lease.release()

    def _hold(self, lease: Lease) -> None:
        since, ends_at = self._spans()
        until = since
        while (now := time.monotonic()) and lease.held:
            until = now  # it was ours a moment after that, and so at that time
            if now >= ends_at:
                break
            time.sleep(0.001)
        self._note(lease, since, until)


class AsyncParty(Party):
    """One with tasks, some of which are cancelled."""

    def run(self) -> None:
        """For ever."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        await asyncio.gather(*(self._go_on() for _ in range(TASKS)))

    async def _go_on(self) -> None:
        chance = self._random
        while True:
            locks, gone = self._client(aio.connect)
            if gone is not None:
                await gone.close()
            task = asyncio.ensure_future(self._take_soon(locks))
            if chance.random() < 0.3:
                await asyncio.wait({task}, timeout=chance.choice([0, 0.001, 0.01, 0.1, 1]))
                task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()

    async def _take_soon(self, locks: aio.Locks) -> None:
        try:
            lease = await locks.acquire(**self._terms())
        except HoldfastError:
            return
        since, ends_at = self._spans()
        until = since
        try:
            while (now := time.monotonic()) and lease.held:
                until = now
                if now >= ends_at:
                    break
                await asyncio.sleep(0.001)
        finally:
            self._note(lease, since, until)
            with suppress(HoldfastError):
                await lease.release()


# --- what is done to them -------------------------------------------------------------------


def foul(
    url: str,
    folder: Path,
    processes: int,
    seconds: float,
    trouble: Callable[[], None] | None = None,
) -> list[str]:
    """Let so many processes run, and kill and stop them at random, and what they talk to be in
    trouble. Who died by itself, and who got no lock any more when the trouble was over."""
    parties = [_start(url, folder, place) for place in range(processes)]
    found = []
    ends_at = time.monotonic() + seconds
    try:
        while time.monotonic() < ends_at:
            time.sleep(random.uniform(0.05, 0.5))
            if trouble is not None and random.random() < 0.5:
                trouble()
            place, dice = random.randrange(processes), random.random()
            party = parties[place]
            if party.poll() is not None:
                found.append(f"process {party.pid} died by itself: {party.returncode}")
            if dice < 0.15 or party.returncode is not None:
                _signal(party, signal.SIGKILL)
                party.wait()
                parties[place] = _start(url, folder, place)
            else:
                _signal(party, signal.SIGSTOP if dice < 0.3 else signal.SIGCONT)
        for party in parties:
            _signal(party, signal.SIGCONT)
        return found + ([] if trouble is None else _shut_out(parties, folder))
    finally:
        for party in parties:
            _signal(party, signal.SIGKILL)
            party.wait()


def _shut_out(parties: Sequence[subprocess.Popen[bytes]], folder: Path) -> list[str]:
    """Who gets no lock though there is no more trouble."""
    peace = time.monotonic()
    missing = {party.pid for party in parties}
    while missing and time.monotonic() < peace + PEACE_S:
        time.sleep(0.5)
        missing -= {one.process for one in diaries(folder) if one.since > peace}
    return [f"process {pid} got no lock any more" for pid in missing]


def _start(url: str, folder: Path, place: int) -> subprocess.Popen[bytes]:
    kind = "--party" if place % 2 == 0 else "--async-party"
    command = [sys.executable, "-m", "tests.soak", url, kind, str(folder)]
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


def soak(
    url: str, processes: int, seconds: float, trouble: Trouble | None = None
) -> tuple[int, list[str]]:
    """How many locks were held, and what was wrong."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = foul(url, Path(folder), processes, seconds, trouble)
        held = list(diaries(Path(folder)))
    return len(held), violations(held) + found


def _place(url: str, server: str | None) -> AbstractContextManager[tuple[str, Trouble | None]]:
    if server is None:
        return nullcontext((url, None))
    from tests.trouble import troubled  # all drivers: too much for each process

    return troubled(server)


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--trouble", metavar="SERVER", help="be on a server that is in trouble")
    parser.add_argument("--party", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--async-party", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.party or asked.async_party:
        logging.disable(logging.CRITICAL)
        kind = Party if asked.party else AsyncParty
        kind(asked.url, asked.party or asked.async_party).run()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        url = asked.url or f"sqlite://{folder}/locks.db"
        with _place(url, asked.trouble) as (url, trouble):
            locks, wrong = soak(url, asked.processes, asked.seconds, trouble)
    sys.stdout.write("".join(f"{one}\n" for one in wrong))
    sys.stdout.write(f"{locks:,} locks, {len(wrong)} violations\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
