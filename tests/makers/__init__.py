"""Processes that want one result of `once`, and are killed while they make it.

    python -m tests.makers [STORE ...] [--processes 20] [--kills 6]

Whoever lives in the end has the one result that was published, and work was begun at most once more
than somebody was killed. Without the name of a store it runs on all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import holdfast
from benchmarks import sites
from holdfast.results import DirectoryResults
from tests.engines.gcs import FakeGCS
from tests.engines.s3 import S3Server
from tests.helpers import until

KEY = "the result"
TTL_S = 3.0
PATIENCE_S = 180.0


@contextmanager
def _bucket(kind: type[Any], scheme: str, url_of: str) -> Iterator[sites.Place]:
    from tests.conformance import blob_targets

    with kind() as server:
        yield sites.Place(scheme, getattr(blob_targets, url_of)(server), server.port)


SITES: dict[str, sites.Site] = {
    **{name: site for name, site in sites.SITES.items() if name != "memory"},
    "s3": lambda: _bucket(S3Server, "s3", "s3_url"),
    "gs": lambda: _bucket(FakeGCS, "gs", "gcs_url"),
}


def work(url: str, environment: dict[str, str], folder: Path) -> None:
    """One process: gets the result, and says what it got."""
    os.environ.update(environment)
    until((folder / "go").exists, PATIENCE_S)  # nobody begins before all are there
    results = DirectoryResults(folder / "results")

    def make(lease: holdfast.Lease) -> str:
        note(folder, f"{os.getpid()} {lease.fence}")
        time.sleep(random.uniform(0.5, 1.5))
        return f"made by {os.getpid()} with fence {lease.fence}"

    with holdfast.connect(url, store_patience=PATIENCE_S) as locks:
        got = locks.once(KEY, into=results, make=make, ttl=TTL_S)
    (folder / f"got-{os.getpid()}").write_text(got)


def note(folder: Path, line: str) -> None:
    """A line in the journal of those who began, in one piece."""
    with (folder / "journal").open("a") as journal:
        journal.write(f"{line}\n")


def journal_of(folder: Path) -> list[str]:
    """Who began, in order."""
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


class Outcome:
    """What came of one run."""

    def __init__(self, results: set[str], begun: int, killed: int, alive: int) -> None:
        self.results = results
        self.begun = begun
        self.killed = killed
        self.alive = alive

    def __str__(self) -> str:
        return (
            f"{len(self.results)} results for {self.alive} who live, begun {self.begun} times, "
            f"{self.killed} killed"
        )

    @property
    def good(self) -> bool:
        """One result for all who live, and not more work than deaths explain."""
        return self.alive > 0 and len(self.results) == 1 and self.begun <= 1 + self.killed


def play(url: str, environment: dict[str, str], processes: int, kills: int) -> Outcome:
    """Start them, kill some, mostly those who are at work, and see what the others got."""
    # Forks of a process that has imported all this: twenty that do so themselves take a minute.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "redis"])
    with tempfile.TemporaryDirectory(prefix="holdfast-makers-") as name:
        folder = Path(name)
        arguments = (url, environment, folder)
        running = [context.Process(target=work, args=arguments) for _ in range(processes)]
        for each in running:
            each.start()
        (folder / "go").touch()
        try:
            killed = _kill_some(running, folder, kills)
            ends_at = time.monotonic() + PATIENCE_S
            for each in running:
                each.join(max(1.0, ends_at - time.monotonic()))
                assert each.exitcode == 0 or each.pid in killed, each
        finally:
            for each in running:
                each.kill()
                each.join(30)
        got = {path.read_text() for path in folder.glob("got-*")}
        published = DirectoryResults(folder / "results").find(KEY)
        if published is not None:
            got.add(published.value)
        return Outcome(got, len(journal_of(folder)), len(killed), processes - len(killed))


def _kill_some(running: Sequence[BaseProcess], folder: Path, kills: int) -> set[int]:
    killed: set[int] = set()
    ends_at = time.monotonic() + PATIENCE_S
    while len(killed) < kills and time.monotonic() < ends_at:
        makers = [int(line.split()[0]) for line in journal_of(folder)]
        alive = [each for each in running if each.is_alive()]
        if not alive:
            break
        at_work = [each for each in alive if makers and each.pid == makers[-1]]
        if not at_work:
            time.sleep(0.02)
            continue
        victim = random.choice(at_work if random.random() < 0.7 else alive)
        victim.kill()
        victim.join(30)
        if victim.exitcode == -signal.SIGKILL and victim.pid is not None:
            killed.add(victim.pid)
    return killed
