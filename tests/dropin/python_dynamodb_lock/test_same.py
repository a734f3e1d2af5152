"""What the original does, ours does too: every test runs against both."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from tests.dropin.python_dynamodb_lock.lab import BRIEF, PATIENT, Lab, LastHeard, seconds
from tests.helpers import until


def test_what_is_on_the_table(lab: Lab) -> None:
    """The item has these attributes, beside what ours adds under a name of its own."""
    client = lab.client(owner_name="me", expiry_period=seconds(3600))
    before = int(time.time())
    with client.acquire_lock("k", additional_attributes={"run": "7", "tries": 3}):
        item = lab.item()
    assert item is not None
    item.pop("holdfast_lease", None)
    assert before + 3599 <= item.pop("expiry_time") <= time.time() + 3602
    assert len(item.pop("record_version_number")) == 36
    assert item == {
        "lock_key": "k", "sort_key": "-", "owner_name": "me", "lease_duration": Decimal(60),
        "run": "7", "tries": Decimal(3),
    }  # fmt: skip
    assert lab.item() is None


def test_names_of_the_table(lab: Lab) -> None:
    """All names can be chosen."""
    create = lab.package.DynamoDBLockClient.create_dynamodb_table
    names = {
        "partition_key_name": "pk", "sort_key_name": "sk", "ttl_attribute_name": "dies_at",
    }  # fmt: skip
    table = f"{lab.table}-2"
    create(lab.resource.meta.client, table, **names, read_capacity=7, write_capacity=8)
    told = lab.resource.meta.client.describe_table(TableName=table)["Table"]
    assert told["ProvisionedThroughput"]["ReadCapacityUnits"] == 7
    assert told["ProvisionedThroughput"]["WriteCapacityUnits"] == 8
    ttl = lab.resource.meta.client.describe_time_to_live(TableName=table)
    assert ttl["TimeToLiveDescription"] == {
        "TimeToLiveStatus": "ENABLED", "AttributeName": "dies_at"
    }  # fmt: skip
    client = lab.package.DynamoDBLockClient(
        lab.resource, table, **names, heartbeat_period=seconds(0.25)
    )
    with client.acquire_lock("a", "b"):
        found = lab.resource.Table(table).get_item(Key={"pk": "a", "sk": "b"})["Item"]
        assert found["dies_at"] > time.time()
    client.close()


def test_the_lock_tells_of_itself(lab: Lab) -> None:
    """Its attributes are public."""
    client = lab.client(owner_name="me")
    lock = client.acquire_lock("a b", "c|d", additional_attributes={"x": "y"})
    assert (lock.partition_key, lock.sort_key) == ("a b", "c|d")
    assert lock.unique_identifier == "a%20b|c%7Cd"
    assert (lock.owner_name, lock.lease_duration) == ("me", 60.0)
    assert lock.additional_attributes == {"x": "y"}
    assert lock.status == lab.package.DynamoDBLock.LOCKED == "LOCKED"
    assert isinstance(lock, lab.package.BaseDynamoDBLock)
    assert lock.lock_client is client
    assert 0 <= time.monotonic() - lock.last_updated_time < 60
    assert "a b" in str(lock)
    item = lab.item("a b", "c|d")
    assert item is not None
    lock.release()
    assert lock.status == "RELEASED"


def test_the_owner_is_random_by_default(lab: Lab) -> None:
    """No two clients are the same."""
    with lab.client().acquire_lock("a") as one, lab.client().acquire_lock("b") as two:
        assert one.owner_name != two.owner_name


def test_keys_are_locks_of_their_own(lab: Lab) -> None:
    """Another sort key is another lock."""
    client = lab.client()
    with client.acquire_lock("k"), client.acquire_lock("k", "1"), client.acquire_lock("K"):
        assert lab.item("k", "1") is not None
        with pytest.raises(lab.Error):
            client.acquire_lock("k", "1", **BRIEF)


def test_it_times_out(lab: Lab) -> None:
    """With this code and these words, and the holder is not harmed."""
    with lab.client().acquire_lock("k") as lock:
        with pytest.raises(lab.Error) as caught:
            lab.client().acquire_lock("k", **BRIEF)
        assert caught.value.code == lab.Error.ACQUIRE_TIMEOUT == "ACQUIRE_TIMEOUT"
        assert caught.value.message == "acquire_lock() timed out: k|-"
        assert str(caught.value) == (
            "DynamoDBLockError: ACQUIRE_TIMEOUT - acquire_lock() timed out: k|-"
        )
        lock.release(best_effort=False)


def test_it_waits_for_a_release(lab: Lab) -> None:
    """Whoever waits gets it next."""
    lock = lab.client().acquire_lock("k")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(lab.client().acquire_lock, "k", **PATIENT)
        time.sleep(0.3)
        assert not waits.done()
        lock.release()
        waits.result(30).release()


def test_beats_change_the_version(lab: Lab) -> None:
    """And nothing else but the expiry."""
    client = lab.client(heartbeat_tps=5)
    with client.acquire_lock("k", additional_attributes={"x": "y"}):
        first, version = _lasting(lab.item()), lab.version()
        until(lambda: lab.version() != version)
        assert _lasting(lab.item()) == first


def _lasting(item: dict[str, Any] | None) -> dict[str, Any]:
    changes = ("record_version_number", "expiry_time", "holdfast_lease")
    return {name: value for name, value in (item or {}).items() if name not in changes}


def test_a_silent_lock_is_taken_over(lab: Lab) -> None:
    """After its lease, as the item tells it."""
    lab.put(lease_duration=1)
    with lab.client().acquire_lock("k", **PATIENT) as lock:
        assert lab.version() == lock.record_version_number
        assert lab.item()["owner_name"] == lock.owner_name  # type: ignore[index]


def test_release_is_best_effort(lab: Lab) -> None:
    """A lock that is gone is nobody's error, unless asked for."""
    lock = lab.still_client().acquire_lock("k")
    lab.delete()
    lock.release()
    assert lock.status == "RELEASED"


def test_release_of_a_stolen_lock(lab: Lab) -> None:
    """With this code and these words."""
    client = lab.still_client()
    lock = client.acquire_lock("k")
    lab.put()
    with pytest.raises(lab.Error) as caught:
        client.release_lock(lock, best_effort=False)
    assert caught.value.code == lab.Error.LOCK_STOLEN == "LOCK_STOLEN"
    assert caught.value.message == "Lock was stolen by someone else"
    assert lab.item()["owner_name"] == "somebody"  # type: ignore[index]


def test_release_of_a_lock_of_another_client(lab: Lab) -> None:
    """With this code and these words; in best effort, nothing happens."""
    lock, other = lab.client().acquire_lock("k"), lab.client()
    with pytest.raises(lab.Error) as caught:
        other.release_lock(lock, best_effort=False)
    assert caught.value.code == lab.Error.LOCK_NOT_OWNED == "LOCK_NOT_OWNED"
    assert caught.value.message == "Lock is not owned by this client"
    other.release_lock(lock)
    assert lab.item() is not None
    assert lock.status == "LOCKED"
    lock.release()


def test_release_twice(lab: Lab) -> None:
    """The second one has nothing to do, also when errors are wanted."""
    client = lab.client()
    lock = client.acquire_lock("k")
    lock.release(best_effort=False)
    with lab.client().acquire_lock("k"):
        lock.release(best_effort=False)
        client.release_lock(lock, best_effort=False)
        assert lab.item() is not None


def test_a_stolen_lock_is_told(lab: Lab) -> None:
    """Once, to the callback, which runs on the executor."""
    told = LastHeard()
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:
        client = lab.client(app_callback_executor=executor)
        lock = client.acquire_lock("k", app_callback=told)
        lab.put()
        until(lambda: told.codes)
        assert lock.status == "INVALID"
        client.close()
    assert told.codes == [lab.Error.LOCK_STOLEN]
    assert told.locks == [lock]
    lock.release(best_effort=False)
    assert lab.item()["owner_name"] == "somebody"  # type: ignore[index]


def test_close_does_not_release(lab: Lab) -> None:
    """What it protects may still be under way. The lock can be released afterwards."""
    client = lab.client()
    lock = client.acquire_lock("k")
    client.close()
    client.close()
    version = lab.version()
    time.sleep(0.6)
    assert lab.version() == version
    assert lock.status == "LOCKED"
    lock.release(best_effort=False)
    assert lab.item() is None


def test_close_releases_when_told(lab: Lab) -> None:
    """All of them."""
    client = lab.client()
    locks = [client.acquire_lock("k"), client.acquire_lock("l")]
    client.close(release_locks=True)
    assert lab.item("k") is None
    assert lab.item("l") is None
    assert [lock.status for lock in locks] == ["RELEASED"] * 2


def test_a_closed_client(lab: Lab) -> None:
    """With this code and these words; whoever waits is told as well."""
    client = lab.client()
    with lab.client().acquire_lock("k"), ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.acquire_lock, "k", **PATIENT)
        time.sleep(0.2)
        client.close()
        for outcome in (waits, pool.submit(client.acquire_lock, "j")):
            with pytest.raises(lab.Error) as caught:
                outcome.result(30)
            assert caught.value.code == lab.Error.CLIENT_SHUTDOWN == "CLIENT_SHUTDOWN"
            assert caught.value.message == "Client already shut down"


def test_other_errors(lab: Lab) -> None:
    """Are wrapped, with the words of boto3."""
    client = lab.package.DynamoDBLockClient(
        lab.resource, "no-such-table", heartbeat_period=seconds(0.25)
    )
    with pytest.raises(lab.Error) as caught:
        client.acquire_lock("k", **BRIEF)
    client.close()
    assert caught.value.code == lab.Error.UNKNOWN == "UNKNOWN"
    assert "ResourceNotFoundException" in caught.value.message


def test_an_item_that_is_no_lock(lab: Lab) -> None:
    """Is left alone."""
    lab.resource.Table(lab.table).put_item(Item={"lock_key": "k", "sort_key": "-", "a": "b"})
    with pytest.raises(lab.Error) as caught:
        lab.client().acquire_lock("k", **BRIEF)
    assert caught.value.code == lab.Error.UNKNOWN
    assert lab.item() == {"lock_key": "k", "sort_key": "-", "a": "b"}
