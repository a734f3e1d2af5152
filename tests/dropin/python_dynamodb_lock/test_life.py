"""Interrupts, forks and threads."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.dropin.python_dynamodb_lock import DynamoDBLock, DynamoDBLockError
from tests.dropin.python_dynamodb_lock.lab import BRIEF, PATIENT, Lab
from tests.helpers import until


@pytest.mark.parametrize("when", ["before-call", "after-call"])
def test_an_interrupt_in_the_middle_of_acquire(ours: Lab, when: str) -> None:
    """Nothing is left behind, and the interrupt goes on its way."""
    events = ours.resource.meta.client.meta.events

    def interrupt(**_: Any) -> None:
        events.unregister(f"{when}.dynamodb.PutItem", interrupt)
        raise KeyboardInterrupt

    client = ours.client()
    events.register(f"{when}.dynamodb.PutItem", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.acquire_lock("k")
    assert ours.item() is None
    client.acquire_lock("k", **BRIEF).release(best_effort=False)


def test_a_client_that_is_closed_while_it_acquires(local: Lab) -> None:
    """It does not return a lock that would never beat."""
    events = local.resource.meta.client.meta.events
    client = local.client()
    events.register("after-call.dynamodb.PutItem", lambda **_: client.close())
    with pytest.raises(DynamoDBLockError, match="CLIENT_SHUTDOWN"):
        client.acquire_lock("k")
    assert local.item() is None


def test_many_threads_of_one_client(local: Lab) -> None:
    """One of them at a time."""
    client = local.client()
    inside, most = 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        with client.acquire_lock("k", **PATIENT):
            inside += 1
            most = max(most, inside)
            inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert most == 1
    assert local.item() is None


def test_the_child_of_a_fork_holds_nothing(local: Lab) -> None:
    """The lock is the parent's, who goes on; the child has locks of its own."""
    client = local.client()
    lock = client.acquire_lock("k")
    child = os.fork()
    if child == 0:  # pragma: no cover
        outcome = 1
        try:
            lock.release(best_effort=False)
            assert lock.status == DynamoDBLock.INVALID
            fresh = Lab(local.endpoint, "ours", local.table).client()
            with pytest.raises(DynamoDBLockError, match="ACQUIRE_TIMEOUT"):
                fresh.acquire_lock("k", **BRIEF)
            mine = client.acquire_lock("j", **BRIEF)
            version = mine.record_version_number
            until(lambda: mine.record_version_number != version)
            mine.release(best_effort=False)
            outcome = 0
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    version = lock.record_version_number
    until(lambda: lock.record_version_number != version)
    lock.release(best_effort=False)
    assert local.item() is None


def test_requests(local: Lab) -> None:
    """Cold two to acquire, then one; one to release. The original needs two and one."""
    asked: list[str] = []
    local.resource.meta.client.meta.events.register(
        "before-call.dynamodb", lambda model, **_: asked.append(model.name)
    )
    client = local.still_client()
    client.acquire_lock("k").release()
    client.acquire_lock("k").release()
    assert asked == ["GetItem", "PutItem", "DeleteItem", "PutItem", "DeleteItem"]
    client.close()


def test_the_error_travels(local: Lab) -> None:
    """Between processes, as errors do."""
    import pickle

    error = DynamoDBLockError(DynamoDBLockError.LOCK_STOLEN, "why")
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.code, copied.message, str(copied)) == (error.code, "why", str(error))
    assert str(DynamoDBLockError()) == "DynamoDBLockError: UNKNOWN - Unknown error"


def test_threads_end_with_the_client(local: Lab) -> None:
    """Nothing of it is left running."""
    client = local.client()
    client.acquire_lock("k")
    assert _threads(client)
    client.close(release_locks=True)
    until(lambda: not _threads(client))


def _threads(client: Any) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if client._uuid in each.name]
