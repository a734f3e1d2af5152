"""What is wrong with the original, and not here."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdfast.dropin.python_dynamodb_lock import DynamoDBLock, DynamoDBLockError
from tests.dropin.dynamodb import at
from tests.dropin.lossy import LossyProxy
from tests.dropin.python_dynamodb_lock.lab import PATIENT, Lab, LastHeard, seconds, tried_once
from tests.helpers import until

OUTAGE = {"safe_period": seconds(1), "heartbeat_period": seconds(0.25)}


def test_what_the_block_raises_is_raised(ours: Lab) -> None:
    """`__exit__` swallows nothing, and the lock is released."""

    class Failed(Exception):
        pass

    with pytest.raises(Failed), ours.client().acquire_lock("k"):
        raise Failed
    assert ours.item() is None


def test_beats_go_on_after_danger(ours: Lab, proxy: LossyProxy) -> None:
    """Danger is told in every outage, and over when a beat goes through again."""
    told = LastHeard()
    client = ours.client(at(proxy.port), **OUTAGE)
    lock = client.acquire_lock("k", app_callback=told)
    for _ in range(2):
        told.codes.clear()
        proxy.plan("reset", 1 << 30)
        until(lambda: lock.status == DynamoDBLock.IN_DANGER)
        until(lambda: told.codes)
        version = ours.version()
        proxy.heal()
        until(lambda: lock.status == DynamoDBLock.LOCKED)
        assert ours.version() != version
        assert set(told.codes) == {DynamoDBLockError.LOCK_IN_DANGER}
    lock.release(best_effort=False)
    assert ours.item() is None


def test_a_lock_in_danger_can_be_released(ours: Lab, proxy: LossyProxy) -> None:
    """That is what the callback is for."""
    client = ours.client(at(proxy.port), **OUTAGE)
    freed = threading.Event()

    def release(code: str, lock: DynamoDBLock) -> None:
        proxy.heal()
        lock.release(best_effort=False)
        freed.set()

    client.acquire_lock("k", app_callback=release)
    proxy.plan("reset", 1 << 30)
    assert freed.wait(30)
    assert ours.item() is None


@pytest.mark.parametrize("mode", ["cut reply", "drop reply"])
def test_a_lost_reply_to_a_beat_is_no_theft(ours: Lab, proxy: LossyProxy, mode: str) -> None:
    """The version that was found is our own."""
    told = LastHeard()
    client = ours.client(at(proxy.port))
    lock = client.acquire_lock("k", app_callback=told)
    version = lock.record_version_number
    proxy.plan(mode, 1, b"UpdateItem")  # type: ignore[arg-type]
    until(lambda: proxy.lost == 1)
    until(lambda: lock.record_version_number != version)
    confirmed = lock.record_version_number
    until(lambda: lock.record_version_number != confirmed)
    assert (told.codes, lock.status) == ([], DynamoDBLock.LOCKED)
    lock.release(best_effort=False)
    assert ours.item() is None


def test_many_lost_replies_to_beats(ours: Lab, proxy: LossyProxy) -> None:
    """No reply to any try of several beats."""
    told = LastHeard()
    client = ours.client(at(proxy.port))
    lock = client.acquire_lock("k", app_callback=told)
    version = lock.record_version_number
    proxy.plan("cut reply", 10, b"UpdateItem")
    until(lambda: proxy.lost == 10, 60)
    until(lambda: lock.record_version_number not in (version, "") and not lock._unconfirmed)
    assert (told.codes, lock.status) == ([], DynamoDBLock.LOCKED)
    assert ours.client().acquire_lock("j").status == DynamoDBLock.LOCKED
    lock.release(best_effort=False)
    assert ours.item() is None


def test_a_real_theft_after_a_lost_reply(ours: Lab, proxy: LossyProxy) -> None:
    """What is found is not ours: that is told."""
    told = LastHeard()
    client = ours.client(at(proxy.port))
    lock = client.acquire_lock("k", app_callback=told)
    ours.put()
    proxy.plan("cut reply", 1, b"UpdateItem")
    until(lambda: told.codes)
    assert told.codes == [DynamoDBLockError.LOCK_STOLEN]
    assert lock.status == DynamoDBLock.INVALID


def test_a_lock_long_dead_is_taken_over_at_once(moto: Lab) -> None:
    """By a process that has just come: it tries once, and waits for no lease."""
    died = moto.client(lease_duration=seconds(0.5))
    died.acquire_lock("k")
    died.close()
    until(lambda: tried_once(moto) is not None)


def test_a_lock_alive_is_not(moto: Lab) -> None:
    """Its beats move the end of its lease."""
    with moto.client(lease_duration=seconds(10)).acquire_lock("k") as lock:
        version = lock.record_version_number
        until(lambda: lock.record_version_number != version)
        assert tried_once(moto) is None


# --- and some that nobody has told of -------------------------------------------------------


def test_danger_is_told_while_a_beat_hangs(ours: Lab, proxy: LossyProxy) -> None:
    """In the original both wait for the same lock; so does release."""
    told = LastHeard()
    client = ours.client(at(proxy.port), **OUTAGE)
    lock = client.acquire_lock("k", app_callback=told)
    proxy.plan("drop reply", 1 << 30, b"UpdateItem")
    until(lambda: DynamoDBLockError.LOCK_IN_DANGER in told.codes)
    lock.release(best_effort=False)
    assert ours.item() is None


def test_a_lock_taken_anew_by_the_same_client(ours: Lab) -> None:
    """The old one is told, and its release does not harm the new one."""
    told = LastHeard()
    client = ours.client(heartbeat_period=seconds(30), lease_duration=seconds(0.5))
    old = client.acquire_lock("k", app_callback=told)
    new = client.acquire_lock("k", **PATIENT)
    until(lambda: told.codes == [DynamoDBLockError.LOCK_STOLEN])
    old.release(best_effort=False)
    client.release_lock(old, best_effort=False)
    assert ours.version() == new.record_version_number
    new.release(best_effort=False)
    assert ours.item() is None


def test_any_lease_can_be_written(ours: Lab) -> None:
    """0.3 seconds are no exact number in binary."""
    with ours.client(lease_duration=timedelta(seconds=0.3)).acquire_lock("k"):
        assert str(ours.item()["lease_duration"]) == "0.3"  # type: ignore[index]


@pytest.mark.parametrize("tps", [0, -2])
def test_an_impossible_rate(local: Lab, tps: int) -> None:
    """Is told at once, not in a thread."""
    with pytest.raises(ValueError, match="heartbeat_tps"):
        local.client(heartbeat_tps=tps)


def test_close_does_not_sleep(local: Lab) -> None:
    """Neither does who waits for a lock of a client that is closed."""
    client = local.client(heartbeat_period=seconds(3600))
    with local.client().acquire_lock("k"), ThreadPoolExecutor(1) as pool:
        client.acquire_lock("j")
        waits = pool.submit(client.acquire_lock, "k", retry_timeout=seconds(7200))
        time.sleep(0.1)
        client.close()
        with pytest.raises(DynamoDBLockError, match="CLIENT_SHUTDOWN"):
            waits.result(30)


def test_a_lock_without_a_callback(local: Lab) -> None:
    """Nobody is told, and nothing breaks."""
    client = local.client()
    lock, other = client.acquire_lock("k"), client.acquire_lock("j")
    local.put()
    until(lambda: lock.status == DynamoDBLock.INVALID)
    version = other.record_version_number
    until(lambda: other.record_version_number != version)


def test_a_callback_that_fails(local: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Is logged, and harms nobody else."""

    def fail(code: str, lock: DynamoDBLock) -> None:
        raise RuntimeError("the callback's own")

    client = local.client()
    other = client.acquire_lock("j")
    client.acquire_lock("k", app_callback=fail)
    local.put()
    until(lambda: "the callback's own" in caplog.text)
    version = other.record_version_number
    until(lambda: other.record_version_number != version)


def test_an_executor_that_was_shut_down(local: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Is logged, and the beats go on."""
    executor = ThreadPoolExecutor(1)
    client = local.client(app_callback_executor=executor)
    other = client.acquire_lock("j")
    client.acquire_lock("k", app_callback=LastHeard())
    executor.shutdown()
    local.put()
    until(lambda: "could not be called" in caplog.text)
    version = other.record_version_number
    until(lambda: other.record_version_number != version)
