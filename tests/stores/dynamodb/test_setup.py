"""Making the table, and telling an administrator how."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.errors import Misconfigured
from holdfast.stores.dynamodb import DynamoDBStore
from holdfast.stores.dynamodb.codec import DROP_AT
from tests.cli.program import HOLDFAST
from tests.stores.dynamodb.lab import Lab


def cli(*words: str) -> str:
    """What `holdfast` says."""
    done = subprocess.run([*HOLDFAST, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def described(store: DynamoDBStore) -> dict[str, Any]:
    """What DynamoDB says of the table."""
    return dict(store.transport.call("describe_table", "reading")["Table"])


def ttl(store: DynamoDBStore) -> dict[str, Any]:
    """What DynamoDB says of its TTL."""
    return dict(store.transport.call("describe_time_to_live", "reading")["TimeToLiveDescription"])


def test_setup_on_demand(any_lab: Lab) -> None:
    """By default one pays per request; the TTL is on; and it may be repeated."""
    store = any_lab.store()
    table = described(store)
    assert table["TableStatus"] == "ACTIVE"
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table["KeySchema"] == [{"AttributeName": "lock_key", "KeyType": "HASH"}]
    assert ttl(store) == {"AttributeName": DROP_AT, "TimeToLiveStatus": "ENABLED"}
    store.setup()
    assert described(store)["TableStatus"] == "ACTIVE"


def test_setup_provisioned(lab: Lab) -> None:
    """Or for so many requests a second."""
    store = lab.store(billing="provisioned", read_capacity="3", write_capacity=2)
    capacity = described(store)["ProvisionedThroughput"]
    assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (3, 2)


def test_setup_by_many_at_once(lab: Lab) -> None:
    """Whoever comes second finds the table, or waits for it."""
    table = lab.new_table()
    stores = [lab.open(table) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert [done.result() for done in [pool.submit(s.setup) for s in stores]] == [None] * 6
    assert ttl(stores[0])["TimeToLiveStatus"] == "ENABLED"


def test_ttl_on_another_attribute(lab: Lab) -> None:
    """A TTL that could delete a lock that is held is refused."""
    store = lab.store()
    client, name = store.transport.client, store.options.table
    for attribute, enabled in ((DROP_AT, False), ("expires_at", True)):
        wanted = {"AttributeName": attribute, "Enabled": enabled}
        client.update_time_to_live(TableName=name, TimeToLiveSpecification=wanted)
    with pytest.raises(Misconfigured, match=rf"expires_at.*switch it to {DROP_AT}"):
        store.setup()


def test_setup_from_the_command_line(lab: Lab) -> None:
    """`holdfast setup` makes the table, and then everything else works."""
    url = lab.url(lab.new_table(), clock_margin_s=0)
    assert "is ready" in cli("setup", "--url", url)
    cli("run", "nightly", "--url", url, "--", "true")
    listed = cli("ls", "--all", "--url", url, "--json")
    assert [json.loads(line)["key"] for line in listed.splitlines()] == ["nightly"]
    assert "Deleted 0" in cli("purge", "--url", url)
    doctor = json.loads(cli("doctor", "--url", url, "--trips", "1", "--json"))
    assert abs(doctor["clock_offset_s"]) < 30
    assert doctor["facts"]["clock"] == "store"


def test_print(lab: Lab) -> None:
    """The policy, CloudFormation and Terraform are printed, filled in; nothing is created."""
    table = lab.new_table()
    text = cli("setup", "--print", "--url", lab.url(table))
    assert "$" not in text
    assert text.count(table) == 4
    for word in ("dynamodb:PutItem", "AWS::DynamoDB::Table", 'resource "aws_dynamodb_table"'):
        assert word in text
    assert text.count(DROP_AT) == 2
    assert text.count("PAY_PER_REQUEST") == 2
    with pytest.raises(Misconfigured):
        lab.open(table).load("k")


def test_print_provisioned(lab: Lab) -> None:
    """The capacity is in both templates."""
    text = lab.open("locks", billing="provisioned", write_capacity=7654).ddl()
    assert "PAY_PER_REQUEST" not in text
    assert text.count("7654") == 2


def test_print_for_another_partition(lab: Lab) -> None:
    """Regions of China have ARNs of their own."""
    store = lab.open("locks", region="cn-north-1")
    assert "arn:aws-cn:dynamodb:cn-north-1:*:table/locks" in store.ddl()
