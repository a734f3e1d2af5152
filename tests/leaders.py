"""Candidates with wrong clocks that are killed, stopped and asked to resign, on a server that goes
away meanwhile.

    python -m tests.leaders [redis | postgresql | mysql] [--minutes 10] [--candidates 5]

Every other candidate is one of asyncio. Their clocks show wrong times of day, up to a day off, and
jump. Each leader notes every few milliseconds that it leads: when it looked, and with which
fence. In the end the notes are put in order: fences only grow, a new leader came within the ttl and
two seconds of a death, within a second of a resignation, and no candidate has given up.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count, cycle, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast import aio
from tests.engines.preload import WrongClock, compiled
from tests.helpers import until

KEY = "the leader"
TTL_S = 3.0
TICK_S = 0.02
AFTER_A_DEATH_S = TTL_S + 2.0
AFTER_A_RESIGNATION_S = 1.0
AFTER_AN_OUTAGE_S = 10.0  # a candidate may be waiting for an answer, and pause after that
GATHERED_WITHIN_S = 60.0  # a new candidate has to start first
A_DAY_S = 86_400.0
LEAST_WRONG_S = 1.0
LATE = "a leader came after"
ROOT = Path(__file__).parent.parent


class Act(NamedTuple):
    """That somebody led at a moment of the machine's monotonic clock."""

    at: float
    fence: int
    pid: int
    time_of_day: float  # as this candidate sees it


# --- a candidate --------------------------------------------------------------------------------


class Notes:
    """What one candidate writes down."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"acts-{os.getpid()}").open("a")

    def note(self, lease: holdfast.Lease | aio.Lease) -> None:
        """Note that we lead, if the lease says so after we looked at the clock."""
        now = time.monotonic()
        if lease.held:
            self._file.write(f"{now} {lease.fence} {os.getpid()} {time.time()}\n")
            self._file.flush()


def campaign(url: str, notes: Notes) -> None:
    """One candidate: leads until it is stopped, and resigns at SIGUSR1."""

    def run(lease: holdfast.Lease) -> None:
        while not lease.lost.wait(TICK_S):
            notes.note(lease)

    with holdfast.connect(url) as locks:
        candidate = locks.lead(KEY, run, ttl=TTL_S)
        signal.signal(signal.SIGUSR1, lambda *_: candidate.resign())
        candidate.serve()


async def campaign_async(url: str, notes: Notes) -> None:
    """The same in asyncio."""

    async def run(lease: aio.Lease) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            notes.note(lease)

    async with aio.connect(url) as locks:
        candidate = locks.lead(KEY, run, ttl=TTL_S)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, candidate.resign)
        await candidate.serve()


# --- all of them --------------------------------------------------------------------------------


class Journal:
    """What all have noted so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # how much of each file
        self.acts: list[Act] = []

    def look(self, since: float = 0.0) -> list[Act]:
        """Read what is new. Returns what was noted since then, in order."""
        for path in self._folder.glob("acts-*"):
            with path.open() as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind("\n") + 1]  # the last line may be under way
            self._read[path] = self._read.get(path, 0) + len(whole)
            self.acts += map(_act_of, whole.splitlines())
        self.acts.sort()
        return [act for act in self.acts if act.at >= since]


def _act_of(line: str) -> Act:
    at, fence, pid, time_of_day = line.split()
    return Act(float(at), int(fence), int(pid), float(time_of_day))


class Candidate(NamedTuple):
    """A process, and its clock."""

    process: subprocess.Popen[bytes]
    clock: WrongClock

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


class Company:
    """The candidates of one run."""

    def __init__(self, url: str, folder: Path, size: int) -> None:
        self._url = url
        self._folder = folder
        self._library = compiled("wrong_clock", folder)
        self._numbers = count()
        self.journal = Journal(folder)
        self.trouble: list[str] = []
        self.slowest: dict[str, float] = {}  # how long the next leader took, after what
        self.running = [self._start() for _ in range(size)]

    def _start(self) -> Candidate:
        number = next(self._numbers)
        clock = WrongClock(self._library, self._folder / f"clock-{number}", wrong_by_s())
        face = ("threads", "asyncio")[number % 2]
        command = [
            *(sys.executable, "-m", "tests.leaders", "--work", self._url, face),
            *("--folder", str(self._folder)),
        ]
        env = {**os.environ, **clock.environment}
        # In a session of its own: when a shell that has started us ends, the system resumes whoever
        # is stopped in our process group, and a leader that was to stand still leads on.
        process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
        return Candidate(process, clock)

    def leader(self) -> Candidate | None:
        """Who led a moment ago."""
        latest = self.journal.look(time.monotonic() - 0.5)
        return next((each for each in self.running if latest and each.pid == latest[-1].pid), None)

    def expect(
        self, what: str, seconds: float, since: float, who: Callable[[Act], bool] = lambda act: True
    ) -> None:
        """Wait until such a one leads, and note if that takes too long."""
        acts: list[Act] = []
        stalled_s = 0.0  # a machine that is too busy for us is too busy for them
        while not acts and time.monotonic() - since < seconds + 30:
            slept_at = time.monotonic()
            time.sleep(TICK_S)
            stalled_s = max(stalled_s, time.monotonic() - slept_at - TICK_S)
            acts = [act for act in self.journal.look(since) if who(act)]
        took = (acts[0].at if acts else time.monotonic()) - since
        self.slowest[what] = max(took, self.slowest.get(what, 0.0))
        if took > seconds:
            self.trouble.append(
                f"{what}: {LATE} {took:.2f} s, and we were woken up to {stalled_s:.2f} s late"
            )
        if not acts:
            self._ask_what_they_do()

    def _ask_what_they_do(self) -> None:
        """Nobody leads: have all candidates print where they are, and print what the store says."""
        for each in self.running:
            each.process.send_signal(signal.SIGUSR2)
        with holdfast.connect(self._url) as locks:
            lock = locks.show(KEY)
        pids = [each.pid for each in self.running]
        sys.stderr.write(f"{lock}\nheld by {lock.holders} before {lock.waiters} of {pids}\n")
        time.sleep(1)

    def gather(self) -> None:
        """Wait until one leads and all the others wait: a leader that resigns before they are there
        leads again. Whoever does not come would not follow either."""
        others = len(self.running) - 1
        with holdfast.connect(self._url) as locks:
            try:
                until(lambda: len(locks.show(KEY).waiters) == others, GATHERED_WITHIN_S)
            except AssertionError:
                self.trouble.append(f"of {others} others {len(locks.show(KEY).waiters)} wait")
                self._ask_what_they_do()

    def kill(self, victim: Candidate) -> None:
        """One dies, and somebody new comes for it."""
        victim.process.kill()
        victim.process.wait(30)
        self.running.remove(victim)
        self.running.append(self._start())

    def end(self) -> None:
        """Stop all, kindly; whoever has ended before has given up."""
        for each in self.running:
            if each.process.poll() is not None:
                self.trouble.append(f"{each.pid} gave up with {each.process.returncode}")
            each.process.send_signal(signal.SIGCONT)
            each.process.terminate()
        for each in self.running:
            try:
                each.process.wait(30)
            except subprocess.TimeoutExpired:
                self.trouble.append(f"{each.pid} did not end on SIGTERM")
                each.process.kill()
                each.process.wait(30)

    def check(self) -> None:
        """No two led at once, by their own clocks; and their times of day were wrong indeed."""
        acts = self.journal.look()
        for before, after in pairwise(acts):
            if after.fence < before.fence:
                self.trouble.append(f"{after} acted after {before}")
        if self.clocks_wrong_s < LEAST_WRONG_S / 2:
            self.trouble.append("the clocks were right")

    @property
    def terms(self) -> int:
        """How often somebody came to lead."""
        return len({act.fence for act in self.journal.acts})

    @property
    def clocks_wrong_s(self) -> float:
        """By how much the clock of a leader was wrong at the most."""
        right = time.time() - time.monotonic()
        return max(
            (abs(act.time_of_day - act.at - right) for act in self.journal.acts), default=0.0
        )

    def __str__(self) -> str:
        slowest = ", ".join(f"{what} {took:.2f} s" for what, took in self.slowest.items())
        return (
            f"{self.terms} terms, clocks up to {self.clocks_wrong_s / 3600:.1f} h wrong; the next "
            f"leader at the latest after: {slowest}; {self.trouble or 'nothing was wrong'}"
        )


def wrong_by_s() -> float:
    """By how much a clock is wrong: seconds, minutes or hours, fast or slow."""
    most = random.choice((2 * LEAST_WRONG_S, 60.0, A_DAY_S))
    return random.choice((-1, 1)) * random.uniform(max(most / 2, LEAST_WRONG_S), most)


# --- what happens to them -----------------------------------------------------------------------


def kill(company: Company, leader: Candidate) -> None:
    """The leader dies."""
    began = time.monotonic()
    company.kill(leader)
    company.expect("kill", AFTER_A_DEATH_S, began, lambda act: act.pid != leader.pid)


def stop(company: Company, leader: Candidate) -> None:
    """The leader stands still for longer than its ttl, and goes on."""
    began = time.monotonic()
    leader.process.send_signal(signal.SIGSTOP)
    company.expect("stop", AFTER_A_DEATH_S, began, lambda act: act.pid != leader.pid)
    time.sleep(random.uniform(0.0, 2.0))
    if not _stands_still(leader.pid):
        company.trouble.append(f"{leader.pid} went on although it was stopped")
    leader.process.send_signal(signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def resign(company: Company, leader: Candidate) -> None:
    """The leader resigns."""
    began = time.monotonic()
    leader.process.send_signal(signal.SIGUSR1)
    company.expect("resign", AFTER_A_RESIGNATION_S, began, lambda act: act.pid != leader.pid)


def jump(company: Company, leader: Candidate) -> None:
    """The clocks of the leader and of another one jump, and that changes nothing."""
    began = time.monotonic()
    for each in (leader, random.choice(company.running)):
        each.clock.jump(wrong_by_s())
    company.expect("jump", AFTER_A_RESIGNATION_S, began, lambda act: act.pid == leader.pid)


TROUBLE: tuple[Callable[[Company, Candidate], None], ...] = (kill, stop, resign, jump)


def outage(company: Company, server: Any, seconds: float) -> None:
    """The server does not answer for a while; meanwhile one dies, and a new one starts, or one
    stands still for longer than the outage."""
    victim, stands_still = random.choice(company.running), random.random() < 0.5
    server.pause()
    try:
        time.sleep(seconds / 2)
        if stands_still:
            victim.process.send_signal(signal.SIGSTOP)
        else:
            company.kill(victim)
        time.sleep(seconds / 2)
    finally:
        server.resume()
    company.expect(f"outage of {seconds:g} s", AFTER_AN_OUTAGE_S, time.monotonic())
    if stands_still:
        victim.process.send_signal(signal.SIGCONT)


class Plan(NamedTuple):
    """How long, how many, and how often the server goes away for how long."""

    minutes: float = 10.0
    candidates: int = 5
    outages: int = 3
    outage_s: float = 120.0

    def outages_at(self) -> list[float]:
        """When they begin, in seconds: each in the middle of its part of the run."""
        part = 60 * self.minutes / max(self.outages, 1)
        return [part * (number + 0.5) - self.outage_s / 2 for number in range(self.outages)]


def play(server: Any, plan: Plan) -> Company:
    """One run. Returns the company; its `trouble` is what was wrong."""
    with tempfile.TemporaryDirectory(prefix="holdfast-leaders-") as name:
        company = Company(url_of(server), Path(name), plan.candidates)
        try:
            company.gather()
            began = time.monotonic()
            outages = plan.outages_at()
            troubles = cycle(random.sample(TROUBLE, len(TROUBLE)))
            while time.monotonic() - began < 60 * plan.minutes:
                time.sleep(random.uniform(0.2, 2.0))
                leader = company.leader()
                if outages and time.monotonic() - began >= outages[0]:
                    outages.pop(0)
                    outage(company, server, plan.outage_s)
                elif leader is not None:
                    trouble = next(troubles)
                    trouble(company, leader)
                    if trouble is stop:
                        company.gather()
        finally:
            company.end()
        company.check()
        return company


def server_of(name: str) -> Any:
    """A server of its own, which is not yet started."""
    from tests.engines.mariadb import MariaDB
    from tests.engines.postgres import PostgreSQL
    from tests.engines.redis import RedisServer

    return {"redis": RedisServer, "postgresql": PostgreSQL, "mysql": MariaDB}[name]()


def url_of(server: Any) -> str:
    """Its URL, with the tables there that locks need."""
    url = str(server.url() if callable(server.url) else server.url)
    with holdfast.connect(url) as locks:
        locks.setup()
    return url


def main() -> int:
    """Returns 1 if something was wrong."""
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", nargs="?", default="redis")
    parser.add_argument("--minutes", type=float, default=plan.minutes)
    parser.add_argument("--candidates", type=int, default=plan.candidates)
    parser.add_argument("--outages", type=int, default=plan.outages)
    parser.add_argument("--outage", type=float, default=plan.outage_s, metavar="SECONDS")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        faulthandler.register(signal.SIGUSR2, all_threads=True)
        url, face = given.work
        notes = Notes(Path(given.folder))
        campaign(url, notes) if face == "threads" else asyncio.run(campaign_async(url, notes))
        return 0
    with server_of(given.server) as server:
        company = play(server, Plan(given.minutes, given.candidates, given.outages, given.outage))
    sys.stdout.write(f"{given.server}: {company}\n")
    return 1 if company.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
