"""Leases as objects on real servers: the same calls, with conditional writes underneath."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import obstore
import pytest

from holdfast import BadURL, CorruptRecord, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.dropin import mops_lock as lease
from holdfast.dropin.mops_lock.lease_file import join
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.registry import open_store
from tests.conformance.blob_targets import azure_url, s3_url
from tests.dropin.mops_lock.lab import LONG, SHORT, race, theirs
from tests.engines.azurite import Azurite
from tests.engines.base import free_port
from tests.engines.s3 import S3Server
from tests.engines.shared import shared
from tests.helpers import until

MEMOS: dict[str, Callable[[], str]] = {
    "azure": lambda: azure_url(shared(Azurite)),
    "s3": lambda: s3_url(shared(S3Server)),
    "last-writer": lambda: s3_url(shared(S3Server)) + "&protocol=last-writer",
}


class Bucket:
    """A lease in a bucket, and what is in its object."""

    def __init__(self, memo: str) -> None:
        self.memo = memo
        self.uri = join(memo, "lock")
        store = open_store(memo)
        assert isinstance(store, BlobStore)
        self._bucket = store.bucket

    def read(self) -> dict[str, Any]:
        """The object as it is."""
        raw = obstore.get(self._bucket.store, self._bucket.path("lock/lock.json")).bytes()
        contents: dict[str, Any] = json.loads(bytes(raw))
        return contents

    def write(self, body: bytes) -> None:
        """Whatever was there."""
        obstore.put(self._bucket.store, self._bucket.path("lock/lock.json"), body)


@pytest.fixture(params=MEMOS)
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A place of its own on each server."""
    return Bucket(MEMOS[request.param]())


def test_the_whole_of_it(bucket: Bucket) -> None:
    """Acquire, keep, join, look, release."""
    acquired = lease.acquire(bucket.uri, expire=LONG)
    assert acquired is not None
    assert lease.acquire(bucket.uri, expire=LONG) is None
    remote = lease.make_remote_lease_writer(bucket.uri, acquired.writer_id)
    remote.maintain()
    acquired.maintain()
    assert bucket.read()["writer_id"] == acquired.writer_id
    assert lease.read_lease(bucket.memo) == bucket.read()
    release = lease.add_lease_to_maintenance_daemon(acquired)
    release()
    assert bucket.read()["released_at"]
    with pytest.raises(lease.LeaseLostError, match="released"):
        remote.maintain()
    second = lease.acquire(bucket.uri, expire=LONG)
    assert second is not None
    with pytest.raises(lease.LeaseLostError, match=second.writer_id):
        lease.make_remote_lease_writer(bucket.uri, acquired.writer_id)


def test_stale_parties(bucket: Bucket) -> None:
    """Neither maintain nor release touches what a new owner has."""
    stale = lease.acquire(bucket.uri, expire=SHORT)
    assert stale is not None
    owner = lease.acquire(bucket.uri, expire=SHORT, block=timedelta(seconds=20))
    assert owner is not None
    stale.release()
    with pytest.raises(lease.LeaseLostError):
        stale.maintain()
    assert bucket.read()["writer_id"] == owner.writer_id
    assert bucket.read()["released_at"] == ""


def test_kept_in_the_background(bucket: Bucket) -> None:
    """The daemon's writes arrive."""
    acquired = lease.acquire(bucket.uri, expire=timedelta(seconds=1))
    assert acquired is not None
    release = lease.maintain_to_release(acquired)
    first = bucket.read()["write_count"]
    until(lambda: bucket.read()["write_count"] > first + 1)
    release()


@pytest.mark.parametrize("kind", ["azure", "s3"])
def test_one_of_many_gets_it(kind: str) -> None:
    """The service decides, not the clock."""
    bucket = Bucket(MEMOS[kind]())
    for _ in range(5):
        (winner,) = race(bucket.uri, 6, beside_mops=False)
        winner.release()


def test_old_and_new_workers_exclude_each_other(bucket: Bucket) -> None:
    """On a bucket as in a directory: held, joined, released, and told when it was taken."""
    held = lease.acquire(bucket.uri, expire=LONG)
    assert held is not None
    assert theirs.acquire(bucket.uri, expire=LONG) is None
    remote = theirs.make_remote_lease_writer(bucket.uri, held.writer_id)
    remote.maintain()
    held.maintain()
    held.release()
    old = theirs.acquire(bucket.uri, expire=LONG, debug=False)
    assert lease.acquire(bucket.uri, expire=LONG) is None
    joined = lease.make_remote_lease_writer(bucket.uri, old.writer_id)
    old.maintain()
    joined.maintain()
    old.release()
    with pytest.raises(lease.LeaseLostError, match="released"):
        joined.maintain()
    mine = lease.acquire(bucket.uri, expire=LONG)
    assert mine is not None
    old.maintain()  # an old worker that comes back takes it, as it does from its own kind
    with pytest.raises(lease.LeaseLostError, match=old.writer_id):
        mine.maintain()


def test_what_is_no_lease_is_left_alone(bucket: Bucket) -> None:
    """An error that says so, and nothing is overwritten."""
    bucket.write(b'{"v": 1}')
    with pytest.raises(CorruptRecord, match="left alone"):
        lease.acquire(bucket.uri)
    with pytest.raises(lease.CannotMaintainLease, match="left alone"):
        lease.make_remote_lease_writer(bucket.uri)
    assert bucket.read() == {"v": 1}


def test_the_address_of_mops() -> None:
    """adls://account/container/path is that container's path, signs and all."""
    memo = azure_url(shared(Azurite))
    rest, _, options = memo.partition("?")
    path = rest.removeprefix("az://")
    adls = f"adls://devstoreaccount1/{path}/a b+%20c?{options}"
    assert lease.acquire(join(adls, "lock"), expire=LONG) is not None
    store = open_store(memo)
    assert isinstance(store, BlobStore)
    found = obstore.get(store.bucket.store, store.bucket.path("a b+%20c/lock/lock.json"))
    assert json.loads(bytes(found.bytes()))["expire_s"] == 60


def test_trouble() -> None:
    """No server, no bucket, no sense: clear errors, and no secrets in them."""
    memo = s3_url(shared(S3Server))
    port = f"{shared(S3Server).port}"
    with pytest.raises((Unavailable, OutcomeUnknown), match="cannot be reached"):
        lease.acquire(memo.replace(port, str(free_port())))
    with pytest.raises(Misconfigured, match="no bucket") as error:
        lease.acquire(memo.replace("s3://locks/", "s3://nowhere/"))
    assert "secret" not in str(error.value)
    with pytest.raises(lease.CannotMaintainLease, match="no bucket"):
        lease.make_remote_lease_writer(memo.replace("s3://locks/", "s3://nowhere/"))
    for uri in ("redis://host/0", "adls://account", "sqlite:///x"):
        with pytest.raises(BadURL, match=r"[Ll]ease"):
            lease.acquire(uri)
