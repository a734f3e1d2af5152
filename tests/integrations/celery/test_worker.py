"""Exclusive tasks in a real prefork worker, over a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from holdfast import Busy
from holdfast.integrations.celery import was_skipped
from tests.integrations.celery import app as tasks
from tests.integrations.celery.conftest import World
from tests.integrations.celery.journal import overlaps

pytestmark = pytest.mark.usefixtures("worker")

WITHIN = 40.0


def test_two_runs_of_one_key_never_overlap(world: World, item: str) -> None:
    """Eight tasks on four processes run one after the other, with growing fences."""
    sent = [tasks.waits.delay(item, 0.1) for _ in range(8)]
    fences = [result.get(timeout=WITHIN) for result in sent]
    runs = world.runs(item)
    assert overlaps(runs) == []
    begun = [run["fence"] for run in runs if run["what"] == "begin"]
    assert begun == sorted(set(begun))
    assert sorted(fences) == begun
    assert len({run["pid"] for run in runs}) > 1


def test_other_keys_do_not_wait(world: World, item: str) -> None:
    """Tasks on different keys run side by side."""
    holder = tasks.waits.delay(item, 2.0)
    world.journal.wait_for("begin", key=f"item:{item}")
    tasks.waits.delay(item + "b").get(timeout=WITHIN)
    assert not holder.ready()
    holder.get(timeout=WITHIN)


def test_skip_gives_a_marker(world: World, item: str) -> None:
    """A skipped task succeeds at once and says whose lock it was."""
    holder = tasks.waits.delay(item, 1.5)
    world.journal.wait_for("begin", key=f"item:{item}")
    result = tasks.skips.delay(item).get(timeout=WITHIN)
    assert was_skipped(result)
    assert result["key"] == f"item:{item}"
    assert result["held_by"] == [f"{tasks.waits.name}[{holder.id}]"]
    assert not was_skipped(holder.get(timeout=WITHIN))
    assert not was_skipped(tasks.skips.delay(item).get(timeout=WITHIN))


def test_ignore_stores_no_result(world: World, item: str) -> None:
    """An ignored task leaves neither a result nor a state behind."""
    holder = tasks.waits.delay(item, 1.5)
    world.journal.wait_for("begin", key=f"item:{item}")
    ignored = tasks.ignores.delay(item)
    holder.get(timeout=WITHIN)
    tasks.plain.delay(1).get(timeout=WITHIN)
    assert ignored.state == "PENDING"
    assert not world.journal.entries("begin", name="ignores", key=f"item:{item}")


def test_retry_comes_again(world: World, item: str) -> None:
    """A task that finds its lock taken goes back to the broker until it is free."""
    holder = tasks.waits.delay(item, 1.0)
    world.journal.wait_for("begin", key=f"item:{item}")
    assert tasks.retries.delay(item).get(timeout=WITHIN) >= 1
    assert holder.ready()
    assert overlaps(world.runs(item)) == []


def test_retry_gives_up_in_the_end(world: World, item: str) -> None:
    """After its retries the task fails with `Busy`, which names the holder."""
    holder = tasks.waits.delay(item, 2.0)
    world.journal.wait_for("begin", key=f"item:{item}")
    with pytest.raises(Busy, match=rf"held by .*waits\[{holder.id}\]"):
        tasks.retries_once.delay(item).get(timeout=WITHIN)
    holder.get(timeout=WITHIN)


def test_retries_for_a_lock_are_not_those_for_an_error(world: World, item: str) -> None:
    """A task that fails does not go on for as long as it may come again for its lock."""
    with world.locks.acquire(f"item:{item}"):
        sent = [tasks.never_works.delay(item) for _ in range(8)]  # on all processes
        _until(lambda: all(result.state == "RETRY" for result in sent))
    for result in sent:
        with pytest.raises((KeyError, Busy)):
            result.get(timeout=WITHIN)
    assert len(world.journal.entries("begin", key=f"item:{item}")) <= 2 * len(sent)


def test_another_delivery_is_no_retry(world: World, item: str) -> None:
    """A task that is delivered twice has all its retries left when it runs at last."""
    task_id = f"task-{item}"
    with world.locks.acquire(f"item:{item}", ttl=1.5, note={"task_id": task_id}):
        sent = tasks.retries.apply_async((item,), task_id=task_id)
        _until(lambda: sent.state == "RETRY")
    assert sent.get(timeout=WITHIN) == 0


def test_raise_fails_at_once(world: World, item: str) -> None:
    """busy="raise" is an error like any other."""
    with world.locks.acquire(f"item:{item}"), pytest.raises(Busy, match="held by the test"):
        tasks.fails_if_busy.delay(item).get(timeout=WITHIN)


def test_the_lock_shows_the_task(world: World, item: str) -> None:
    """The owner is the task with its id; the note has more."""
    sent = tasks.waits.delay(item, 1.0)
    world.journal.wait_for("begin", key=f"item:{item}")
    (holder,) = world.locks.show(f"item:{item}").holders
    assert holder.owner == f"{tasks.waits.name}[{sent.id}]"
    assert holder.note == {
        "task": tasks.waits.name,
        "task_id": sent.id,
        "retries": 0,
        "worker": "worker@test",
    }
    sent.get(timeout=WITHIN)


def test_an_exception_releases(world: World, item: str) -> None:
    """A task that raises frees its lock at once, and its own error is what comes out."""
    with pytest.raises(KeyError):
        tasks.breaks.delay(item).get(timeout=WITHIN)
    assert world.free(item)


def test_a_long_task_keeps_its_lease(world: World, item: str) -> None:
    """A task that runs for several ttls still holds the lock at its end."""
    sent = tasks.runs_for_long.delay(item)
    world.journal.wait_for("begin", key=f"item:{item}")
    time.sleep(2.5)
    assert not world.free(item)
    assert sent.get(timeout=WITHIN) is True
    assert world.free(item)


def test_the_soft_time_limit_releases(world: World, item: str) -> None:
    """At its soft time limit a task can clean up under its lock, which is then freed."""
    with pytest.raises(SoftTimeLimitExceeded):
        tasks.runs_out_of_time.delay(item).get(timeout=WITHIN)
    assert world.journal.entries("stopped", key=f"item:{item}")
    assert world.free(item)


def test_revoke_with_terminate_releases(world: World, item: str) -> None:
    """A terminated task frees its lock long before the ttl would."""
    sent = tasks.has_a_long_ttl.delay(item, 50)
    world.journal.wait_for("begin", key=f"item:{item}")
    sent.revoke(terminate=True)
    with world.locks.acquire(f"item:{item}", timeout=30):
        pass
    assert world.journal.entries("end", key=f"item:{item}")


def test_a_revoked_task_leaves_the_queue(world: World, item: str) -> None:
    """A task that is terminated while it waits does not stay in line."""
    with world.locks.acquire(f"item:{item}"):
        sent = tasks.waits.delay(item)
        _until(lambda: bool(world.locks.show(f"item:{item}").waiters))
        sent.revoke(terminate=True)
        _until(lambda: not world.locks.show(f"item:{item}").waiters)


def test_a_retry_is_not_stopped_by_its_own_first_run(item: str) -> None:
    """A skipping task that retries itself is not skipped for the lock of its first run."""
    assert tasks.retried_after_an_error.delay(item).get(timeout=WITHIN) >= 1


def test_a_long_task_learns_that_it_is_wanted(world: World, item: str) -> None:
    """The holder stops early for the task that waits, and knows which one it is."""
    partial = tasks.yields_when_wanted.delay(item)
    world.journal.wait_for("begin", key=f"item:{item}")
    full = tasks.waits.delay(item)
    assert partial.get(timeout=WITHIN) == [f"{tasks.waits.name}[{full.id}]"]
    full.get(timeout=WITHIN)
    world.journal.wait_for("told", key=f"item:{item}")
    assert overlaps(world.runs(item)) == []


def test_one_client_serves_many_tasks(item: str) -> None:
    """Processes of the pool make their client once, and not for each task."""
    sent = [tasks.which_client.delay(f"{item}{number}") for number in range(16)]
    clients = {tuple(result.get(timeout=WITHIN)) for result in sent}
    assert len(clients) == len({pid for pid, _ in clients})


def _until(true: Callable[[], bool], within: float = 20.0) -> None:
    ends_at = time.monotonic() + within
    while not true():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def test_locks_at_module_level(world: World, item: str) -> None:
    """Tasks run under locks of a client that was made before the worker forked."""
    with world.worker(name=item, queue=item):
        sent = [tasks.guarded.apply_async((item,), queue=item) for _ in range(6)]
        said = [result.get(timeout=40) for result in sent]
    assert all(owner.endswith(f":{process}") for process, owner in said), said
