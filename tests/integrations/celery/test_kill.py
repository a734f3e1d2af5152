"""A worker that is killed with -9, and the broker that delivers its tasks again."""

from __future__ import annotations

import os
import signal
import time

import pytest

from holdfast.integrations.celery import was_skipped
from tests.integrations.celery import app as tasks
from tests.integrations.celery.conftest import World

WITHIN = 40.0
TTL = 7.0
# The broker gives a task to somebody else once it was not acknowledged for this long; it
# looks for such tasks when a worker connects.
VISIBILITY = 1.0
SETTINGS = {tasks.VISIBILITY_VARIABLE: str(VISIBILITY), tasks.TTL_VARIABLE: str(TTL)}


def test_killed_tasks_run_again_after_the_ttl(world: World, item: str) -> None:
    """acks_late delivers them again while the dead worker's locks still stand: whatever they
    do when they are busy, they run again, and only once the ttl has freed their lock."""
    kinds = {f"{item}{task.name}": task for task in (tasks.waits, tasks.retries, tasks.skips)}
    first = world.worker(SETTINGS, name=f"{item}-a", queue=item, concurrency=3)
    try:
        first.wait_until_ready()
        sent = [task.apply_async((name, 2.0), queue=item) for name, task in kinds.items()]
        for name in kinds:
            world.journal.wait_for("begin", key=f"item:{name}")
        time.sleep(VISIBILITY)
    finally:
        first.kill()
    with world.worker(SETTINGS, name=f"{item}-b", queue=item, concurrency=3):
        for result in sent:
            assert not was_skipped(result.get(timeout=WITHIN))
    for name in kinds:
        begun, again = world.journal.entries("begin", key=f"item:{name}")
        assert again["fence"] > begun["fence"]
        # One machine, one clock: the dead run's lease was valid for a ttl from its start.
        assert again["at"] - begun["at"] >= TTL * 0.95


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGTERM], ids=["cold", "warm"])
def test_a_shutdown_releases(world: World, item: str, how: signal.Signals) -> None:
    """A cold shutdown ends the running task, a warm one waits for it; both free its lock."""
    worker = world.worker(name=item, queue=item, concurrency=1)
    try:
        worker.wait_until_ready()
        tasks.has_a_long_ttl.apply_async((item, 50 if how == signal.SIGQUIT else 2), queue=item)
        world.journal.wait_for("begin", key=f"item:{item}")
        os.kill(worker.pid, how)
        with world.locks.acquire(f"item:{item}", timeout=WITHIN):
            assert world.journal.entries("end", key=f"item:{item}")
    finally:
        worker.stop()


def test_a_killed_process_frees_its_lock_at_once(world: World, item: str) -> None:
    """The parent notices, long before the ttl is over, and says who evicted the lease and why."""
    with world.worker(name=item, queue=item, concurrency=1) as worker:
        for number in range(2):  # also of a process that the pool has started later
            name = f"{item}{number}"
            tasks.has_a_long_ttl.apply_async((name, 50), queue=item)
            (begun,) = world.journal.wait_for("begin", key=f"item:{name}")
            os.kill(begun["pid"], signal.SIGKILL)
            with world.locks.acquire(f"item:{name}", timeout=WITHIN) as lease:
                assert lease.fence > begun["fence"]
            past = world.locks.show(f"item:{name}").history
            why = f"its worker process {begun['pid']} died"
            assert ("evicted", why) in [(one.what, one.reason) for one in past]
        assert "set reject_on_worker_lost for " in worker.output()


def test_a_task_whose_process_died_runs_again(world: World, item: str) -> None:
    """With `reject_on_worker_lost` it comes back, and its lock is free by then."""
    with world.worker(name=item, queue=item, concurrency=1):
        sent = tasks.dies_once.apply_async((item,), queue=item)
        assert sent.get(timeout=WITHIN) == "ran again"
