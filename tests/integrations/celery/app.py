"""The Celery app that the test workers run; its settings come from the environment."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

import holdfast
from holdfast.integrations.celery import current_lease, exclusive, hand_over_to, once_per_key
from holdfast.results import DirectoryResults
from tests.integrations.celery.journal import Journal

BROKER_VARIABLE = "TEST_BROKER"
LOCKS_VARIABLE = "TEST_LOCKS"
JOURNAL_VARIABLE = "TEST_JOURNAL"
VISIBILITY_VARIABLE = "TEST_VISIBILITY_S"
TTL_VARIABLE = "TEST_TTL_S"
BEAT_VARIABLE = "TEST_BEAT_S"

TTL = float(os.environ.get(TTL_VARIABLE, "3"))

broker = os.environ.get(BROKER_VARIABLE, "memory://")
app = Celery("tests", broker=broker, backend=broker.replace("memory://", "cache+memory://"))
app.conf.update(
    holdfast_url=os.environ.get(LOCKS_VARIABLE),
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": float(os.environ.get(VISIBILITY_VARIABLE, "3600"))
    },
    result_backend_transport_options={"retry_policy": {"timeout": 5.0}},
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    holdfast_beat_ttl=TTL,
)
if BEAT_VARIABLE in os.environ:
    app.conf.beat_schedule = {
        "tick": {"task": f"{__name__}.tick", "schedule": float(os.environ[BEAT_VARIABLE])}
    }

journal = Journal(os.environ.get(JOURNAL_VARIABLE, os.devnull))


def work(name: str, seconds: float = 0.0) -> int:
    """Note that we run, for so long, under which fence."""
    lease = current_lease()
    facts = {"key": lease.key, "name": name, "fence": lease.fence, "pid": os.getpid()}
    journal.write("begin", owner=lease.owner, note=lease.note, **facts)
    try:
        time.sleep(seconds)
        lease.check()
    finally:
        journal.write("end", **facts)
    return int(lease.fence)


def places() -> DirectoryResults:
    """Where results are kept, beside the journal."""
    return DirectoryResults(f"{os.environ[JOURNAL_VARIABLE]}-results")


@app.task
@once_per_key("item:{item}", into=places, ttl=TTL)
def made_once(item: str, seconds: float) -> int:
    """Is done by the first who asks for it."""
    if seconds < 0:
        raise ZeroDivisionError
    return work("made once", seconds)


@app.task(ignore_result=True, expires=10)
def tick() -> None:
    """Sent by beat; nobody runs it."""


@app.task
@exclusive(key="item:{item}", busy="wait", ttl=TTL)
def waits(item: str, seconds: float = 0.0) -> int:
    """Waits for its turn."""
    return work("waits", seconds)


@app.task
@exclusive(key="item:{item}", busy="skip", ttl=TTL)
def skips(item: str, seconds: float = 0.0) -> int:
    """Leaves it to the other."""
    return work("skips", seconds)


@app.task
@exclusive(key="item:{item}", busy="ignore", ttl=TTL)
def ignores(item: str) -> int:
    """Leaves it to the other, without a result."""
    return work("ignores")


@app.task(bind=True, max_retries=None)
@exclusive(key="item:{item}", busy="retry", countdown=0.3, ttl=TTL)
def retries(self: Any, item: str, seconds: float = 0.0) -> int:
    """Comes again."""
    work("retries", seconds)
    return int(self.request.retries)


@app.task
@exclusive(key="item:{item}", busy="retry", countdown=0.1, max_retries=1, ttl=TTL)
def retries_once(item: str) -> int:
    """Comes again, and then fails."""
    return work("retries_once")


@app.task(autoretry_for=(KeyError,), retry_kwargs={"countdown": 0}, max_retries=2)
@exclusive(key="item:{item}", busy="retry", countdown=0.1, max_retries=50, ttl=TTL)
def never_works(item: str) -> None:
    """Has retries of its own, and more for a lock that is taken."""
    work("never_works")
    raise KeyError(item)


@app.task
@exclusive(key="item:{item}", busy="raise", ttl=TTL)
def fails_if_busy(item: str) -> int:
    """Fails."""
    return work("fails_if_busy")


@app.task
@exclusive(key="item:{item}", ttl=TTL)
def breaks(item: str) -> None:
    """Raises in the middle."""
    work("breaks")
    raise KeyError(item)


@app.task(soft_time_limit=1)
@exclusive(key="item:{item}", ttl=60)
def runs_out_of_time(item: str) -> None:
    """Is stopped by its soft time limit."""
    try:
        work("runs_out_of_time", 30)
    except SoftTimeLimitExceeded:
        journal.write("stopped", key=current_lease().key)
        raise


@app.task
@exclusive(key="item:{item}", ttl=60)
def has_a_long_ttl(item: str, seconds: float) -> int:
    """Would block others for long if nobody released its lock."""
    return work("has_a_long_ttl", seconds)


@app.task(bind=True, reject_on_worker_lost=True)
@exclusive(key="item:{item}", ttl=60)
def dies_once(self: Any, item: str) -> str:
    """Kills its own process, unless it was delivered again."""
    if not self.request.delivery_info.get("redelivered"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "ran again"


@app.task
@exclusive(key="item:{item}", ttl=1.5)
def runs_for_long(item: str) -> bool:
    """Runs for several ttls."""
    work("runs_for_long", 4.0)
    return bool(current_lease().held)


@app.task
@exclusive(key="item:{item}", ttl=1.5)
def yields_when_wanted(item: str) -> list[str]:
    """Works in small steps, until somebody waits for the lock."""
    lease = current_lease()
    lease.on_wanted(lambda lease: journal.write("told", key=lease.key))
    journal.write("begin", key=lease.key, name="yields_when_wanted")
    for _ in range(600):
        if lease.wanted:
            break
        time.sleep(0.05)
    journal.write("end", key=lease.key, name="yields_when_wanted")
    return [waiter.owner for waiter in lease.wanted]


@app.task
@exclusive(key="item:{item}", ttl=TTL, hand_over=30)
def first_step(item: str) -> int:
    """Hands its lease to what follows."""
    return work("first_step", 0.1)


@app.task
@exclusive(key="item:{item}", ttl=TTL, late="fail")
def next_step(fence_before: Any, item: str) -> list[Any]:
    """Runs only with the lease that was handed to it."""
    return [fence_before, work("next_step", 0.1)]


@app.task
@exclusive(key="item:{item}", ttl=TTL)
def sends_the_next(item: str, within: float = 30.0, countdown: float = 0.0) -> int:
    """Sends the next task itself, with its lease."""
    fence = work("sends_the_next", 0.1)
    hand_over_to(next_step.s(fence, item), within=within).apply_async(countdown=countdown)
    return fence


@app.task
@exclusive(key="item:{item}", ttl=TTL)
def returns_a_ticket(item: str) -> str:
    """Gives its lease away as its result."""
    work("returns_a_ticket")
    return str(current_lease().hand_over(ttl=30))


@app.task
@exclusive(key="item:{item}", ttl=TTL, take_from="ticket", late="fail")
def takes_a_ticket(ticket: str | None, item: str) -> int:
    """Gets the lease from its argument."""
    return work("takes_a_ticket")


@app.task
def plain(number: int) -> int:
    """A task without a lock."""
    return number


@app.task(bind=True)
@exclusive(key="item:{item}", busy="skip", ttl=TTL)
def retried_after_an_error(self: Any, item: str) -> int:
    """Fails at first; its retry comes back while the first run is only just ending."""
    work("retried_after_an_error")
    if self.request.retries == 0:
        raise self.retry(countdown=0, exc=KeyError(item))
    return int(self.request.retries)


# At module level: the worker imports this, and then forks.
before_the_fork = holdfast.connect(os.environ.get(LOCKS_VARIABLE) or "memory://")
of_the_parent = before_the_fork.acquire(f"of process {os.getpid()}", ttl=600)


@app.task
@before_the_fork.guard("item:{item}", ttl=TTL)
def guarded(item: str) -> list[Any]:
    """Runs under a lock of a client that was made, and used, before the worker forked."""
    return [os.getpid(), holdfast.current_lease().owner]


@app.task
@exclusive(key="item:{item}", ttl=TTL)
def which_client(item: str) -> list[int]:
    """Which process this is, and which of its clients it uses."""
    return [os.getpid(), id(current_lease()._client)]
