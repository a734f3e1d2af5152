"""Replies that do not come: a lock is not lost by it, not hidden, and not freed twice."""

from __future__ import annotations

import pytest

from holdfast.dropin.python_dynamodb_lock import DynamoDBLock, DynamoDBLockError
from tests.dropin.dynamodb import at
from tests.dropin.lossy import LossyProxy, Mode
from tests.dropin.python_dynamodb_lock.lab import BRIEF, PATIENT, Lab, seconds
from tests.helpers import until

LOST: list[Mode] = ["cut reply", "drop reply", "reset"]


@pytest.mark.parametrize("mode", LOST)
def test_of_an_acquire(ours: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """It is ours, at once: nobody waits for a lease of their own."""
    client = ours.client(at(proxy.port))
    proxy.plan(mode, 1, b"PutItem")
    lock = client.acquire_lock("k", **BRIEF)
    assert proxy.lost == 1
    assert ours.version() == lock.record_version_number
    lock.release(best_effort=False)


def test_of_every_try_of_an_acquire(ours: Lab, proxy: LossyProxy) -> None:
    """boto3 gives up; a look shows that it is ours."""
    client = ours.client(at(proxy.port))
    proxy.plan("cut reply", 3, b"PutItem")
    lock = client.acquire_lock("k", **BRIEF)
    assert proxy.lost == 3
    assert ours.version() == lock.record_version_number


def test_of_everything(ours: Lab, proxy: LossyProxy) -> None:
    """An error; what may have been left behind never beats, and its lease frees it."""
    client = ours.client(at(proxy.port), lease_duration=seconds(1.5))
    client.acquire_lock("warm").release()
    proxy.plan("cut reply", 1 << 30)
    with pytest.raises(DynamoDBLockError) as caught:
        client.acquire_lock("k", **BRIEF)
    assert caught.value.code == DynamoDBLockError.UNKNOWN_ERROR == "UNKNOWN"
    assert caught.value.__cause__ is not None
    proxy.heal()
    assert ours.item() is not None
    ours.client().acquire_lock("k", **PATIENT)


def test_of_a_take_over(ours: Lab, proxy: LossyProxy) -> None:
    """The lease of somebody dead is over, and the one that replaced it was us."""
    ours.put(lease_duration=1)
    client = ours.client(at(proxy.port))
    # Cold, it looks first: so the first write is the one that takes over.
    proxy.plan("cut reply", 2, b"PutItem")
    lock = client.acquire_lock("k", **PATIENT)
    assert proxy.lost == 2
    assert ours.version() == lock.record_version_number


@pytest.mark.parametrize("mode", LOST)
def test_of_a_release(ours: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """It is free, and nobody is told of a theft."""
    client = ours.client(at(proxy.port), heartbeat_period=seconds(30))
    lock = client.acquire_lock("k")
    proxy.plan(mode, 1, b"DeleteItem")
    lock.release(best_effort=False)
    assert proxy.lost == 1
    assert ours.item() is None


def test_of_a_release_that_others_saw_first(ours: Lab, proxy: LossyProxy) -> None:
    """Our first try freed it and somebody has it by now: our second does them no harm."""
    client = ours.client(at(proxy.port), heartbeat_period=seconds(30))
    lock = client.acquire_lock("k")
    proxy.after_loss = ours.put
    proxy.plan("cut reply", 1, b"DeleteItem")
    lock.release(best_effort=False)
    item = ours.item()
    assert item is not None
    assert item["owner_name"] == "somebody"


def test_of_a_release_when_nobody_answers(ours: Lab, proxy: LossyProxy) -> None:
    """In best effort it is logged; else it is an error. The lease frees the lock."""
    client = ours.client(at(proxy.port), heartbeat_period=seconds(30))
    one, two = client.acquire_lock("k"), client.acquire_lock("l")
    proxy.plan("reset", 1 << 30)
    one.release()
    with pytest.raises(DynamoDBLockError) as caught:
        two.release(best_effort=False)
    assert caught.value.code == DynamoDBLockError.UNKNOWN
    assert one.status == two.status == DynamoDBLock.RELEASED


def test_a_beat_under_way_during_the_release(ours: Lab, proxy: LossyProxy) -> None:
    """It changed the version; the release finds that out, and nothing comes back."""
    client = ours.client(at(proxy.port))
    lock = client.acquire_lock("k")
    proxy.plan("drop reply", 1 << 30, b"UpdateItem")
    until(lambda: ours.version() != lock.record_version_number)
    lock.release(best_effort=False)
    assert ours.item() is None
    proxy.heal()
    client.close()
    assert ours.item() is None
    assert lock.status == DynamoDBLock.RELEASED
