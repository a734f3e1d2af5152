"""One round: a holder that is stopped, a second one that writes, and what is there in the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from obstore.exceptions import BaseError

import holdfast
from holdfast import Unavailable
from tests.helpers import unique, until
from tests.stale_writers.targets import TARGETS, Address, Target

# A file may be locked by a process that is stopped, and a connection of obstore's pool may just
# have been closed by the server because it was idle.
TRY_AGAIN = (Unavailable, BaseError)
ROOT = Path(__file__).parent.parent.parent


class Write(NamedTuple):
    """What the stopped holder is to do."""

    name: str
    target: str
    guarded: bool
    inside: bool  # it is stopped when it was admitted already, in its open transaction


class Outcome(NamedTuple):
    """What became of one write."""

    write: Write
    said: str  # `stale`, `written`, `lost`, or an error
    value: str | None  # what is there in the end

    @property
    def stale_write(self) -> bool:
        """Whether the old holder's value is there after the new one's."""
        return self.value != "new"


class Overtaker(threading.Thread):
    """The second holder: takes the lock when the ttl of the stopped one is over, and writes."""

    def __init__(self, locks: holdfast.Locks, target: Target, one: Write) -> None:
        super().__init__(daemon=True)
        self._locks, self._target, self._one = locks, target, one
        self.trouble: Exception | None = None

    def run(self) -> None:
        one = self._one
        try:
            with self._locks.acquire(one.name, ttl=60, timeout=120) as lease:
                while not self._written(lease if one.guarded else None):
                    pass
        except Exception as exc:
            self.trouble = exc

    def _written(self, guard: holdfast.Lease | None) -> bool:
        try:
            self._target.write(self._one.name, "new", guard)
        except TRY_AGAIN:
            return False
        return True

    def finish(self) -> None:
        """Wait until it has written; raise what went wrong."""
        self.join(120)
        assert not self.is_alive()
        if self.trouble is not None:
            raise self.trouble


class Stage:
    """The targets of a run, and the locks."""

    def __init__(self, names: Iterable[str], folder: Path) -> None:
        self.addresses: dict[str, Address] = {n: TARGETS[n].start(folder) for n in names}
        self.targets: dict[str, Target] = {
            name: TARGETS[name](address) for name, address in self.addresses.items()
        }
        self.url = f"sqlite://{folder}/locks.db"

    def writes(self, tries: int, *, guarded: bool) -> list[Write]:
        """So many for each target, and as many within a transaction where that can be."""
        return [
            Write(unique(), name, guarded, inside)
            for name, target in self.targets.items()
            for inside in ([False, True] if target.inside and name != "sqlite" else [False])
            for _ in range(tries)
        ]

    def round(self, writes: list[Write], *, busy: bool = False) -> list[Outcome]:
        """Returns what became of each write. `busy`: the holder writes all the time, and is stopped
        at any instruction."""
        for one in writes:
            self.targets[one.target].create(one.name)
        holder = subprocess.Popen(
            [sys.executable, "-m", "tests.stale_writers.holder"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            return self._round(holder, writes, busy=busy)
        finally:
            holder.kill()
            holder.communicate()

    def _round(
        self, holder: subprocess.Popen[str], writes: list[Write], *, busy: bool
    ) -> list[Outcome]:
        assert holder.stdin is not None
        assert holder.stdout is not None
        told = {
            "locks": self.url,
            "busy": busy,
            "addresses": self.addresses,
            "writes": [one._asdict() for one in writes],
        }
        holder.stdin.write(json.dumps(told) + "\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "checked\n"
        if busy:
            time.sleep(random.random())
            os.kill(holder.pid, signal.SIGSTOP)
        until(lambda: _is_stopped(holder.pid), 60)
        with holdfast.connect(self.url) as locks:
            waiting = [Overtaker(locks, self.targets[one.target], one) for one in writes]
            for thread in waiting:
                thread.start()
            # Who waits for a transaction that is stopped gets on only when that has ended.
            for one, thread in zip(writes, waiting, strict=True):
                if not one.inside or not one.guarded:
                    thread.join(10 if busy else 120)
            os.kill(holder.pid, signal.SIGCONT)
            said = json.loads(holder.stdout.readline())
            for thread in waiting:
                thread.finish()
        return [
            Outcome(one, said[one.name], self.targets[one.target].read(one.name)) for one in writes
        ]


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"
