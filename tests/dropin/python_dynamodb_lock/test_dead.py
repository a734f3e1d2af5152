"""Who is dead: by the service's clock where there is one, never by a machine's."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest

from holdfast.dropin.dynamodb_items import ServiceClock
from holdfast.runtime import clock as clock_module
from tests.dropin.python_dynamodb_lock.lab import Lab, tried_once
from tests.helpers import unique

HOUR = 3600


def lease(version: str, ends_in: float) -> dict[str, Any]:
    """The attribute that ours adds."""
    ends_at = Decimal(int(time.time() + ends_in))
    return {"ends_at": ends_at, "record_version_number": version}


@pytest.mark.parametrize(
    ("ends_in", "of_this_version", "dead"),
    [(-HOUR, True, True), (HOUR, True, False), (-HOUR, False, False)],
    ids=["over", "not over", "of another version"],
)
def test_the_end_of_a_lease(moto: Lab, ends_in: float, of_this_version: bool, dead: bool) -> None:
    """What an item of ours says counts, for the version of which it says it."""
    version = unique()
    said = lease(version if of_this_version else unique(), ends_in)
    moto.put(record_version_number=version, holdfast_lease=said)
    assert (tried_once(moto) is not None) == dead


@pytest.mark.parametrize("said", ["text", {"ends_at": "text"}, {}, Decimal(3)])
def test_nonsense_about_the_end_of_a_lease(moto: Lab, said: Any) -> None:
    """Says nothing."""
    version = unique()
    if isinstance(said, dict):
        said = {**said, "record_version_number": version}
    moto.put(record_version_number=version, holdfast_lease=said)
    assert tried_once(moto) is None


@pytest.mark.parametrize(
    ("expired_for", "dead"),
    [(HOUR, True), (30, False), (-HOUR, False), (10 * 365 * 24 * HOUR, False)],
    ids=["long ago", "within its lease", "not yet", "a clock that stands still"],
)
def test_an_old_item_that_may_be_deleted(moto: Lab, expired_for: int, dead: bool) -> None:
    """Past its expiry_time DynamoDB deletes it at any moment: nobody holds that."""
    moto.put(expiry_time=int(time.time()) - expired_for, lease_duration=60)
    assert (tried_once(moto) is not None) == dead


def test_an_old_item_that_is_never_deleted(moto: Lab) -> None:
    """Where the table has no time to live, expiry_time is what some machine's clock said."""
    moto.resource.meta.client.update_time_to_live(
        TableName=moto.table,
        TimeToLiveSpecification={"Enabled": False, "AttributeName": "expiry_time"},
    )
    moto.put(expiry_time=int(time.time()) - HOUR)
    assert tried_once(moto) is None


def test_without_a_clock_nothing_is_said(ours: Lab) -> None:
    """An item tells the end of its lease only by the service's clock."""
    client = ours.client()
    with client.acquire_lock("k"):
        item = ours.item()
    assert item is not None
    assert ("holdfast_lease" in item) == (client._table.clock.latest() is not None)


def test_an_attribute_of_the_same_name(ours: Lab) -> None:
    """What an application passes on from another lock's item is not believed."""
    stale = {"holdfast_lease": lease(unique(), -HOUR)}
    with ours.client().acquire_lock("k", additional_attributes=stale):
        item = ours.item()
        assert item is not None
        assert item.get("holdfast_lease") != stale["holdfast_lease"]


@pytest.mark.parametrize("header", [None, "", "yesterday", "Sun, 99 Nov 2026 22:47:50 GMT"])
def test_a_header_that_tells_no_time(header: str | None) -> None:
    """Is as good as none."""
    clock = ServiceClock()
    assert clock.unknown
    clock.hear({"HTTPHeaders": {} if header is None else {"date": header}}, 0)
    assert (clock.unknown, clock.earliest(), clock.latest()) == (False, None, None)


def test_the_time_is_carried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between beats; after a while it is worth a request to learn it anew."""
    now = 1_000_000_000
    monkeypatch.setattr(clock_module, "monotonic", lambda: now)
    clock = ServiceClock()
    clock.hear({"HTTPHeaders": {"date": "Thu, 01 Jan 1970 00:01:40 GMT"}}, now)
    for passed in (0, 10_000_000, 60_000_000):
        now = 1_000_000_000 + passed
        latest, earliest = clock.latest(), clock.earliest()
        assert latest is not None
        assert earliest is not None
        assert earliest <= 100_000_000 + passed <= 101_000_000 + passed <= latest
    assert clock.unknown
