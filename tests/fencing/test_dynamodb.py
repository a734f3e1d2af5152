"""Conditions that ride on the write, and the gate in a transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

import holdfast
from holdfast import KeyMismatch, LeaseLost, StaleFence, UsageError, fencing
from holdfast.fencing import Fence, aio
from tests.engines.dynamodb import DynamoDBLocal, OldDynamoDBLocal, session
from tests.engines.moto import Moto
from tests.engines.shared import shared
from tests.helpers import memory_locks, unique

KINDS: dict[str, type[DynamoDBLocal] | type[Moto]] = {
    "local": DynamoDBLocal,
    "moto": Moto,
    "old": OldDynamoDBLocal,
}


class Site:
    """A table of the application's, as a client and as a resource know it."""

    def __init__(self, endpoint: str, way: str, *, awaited: bool) -> None:
        self.name = f"T{unique()[:12]}"
        self.client = session().client("dynamodb", endpoint_url=endpoint)
        self.resource = session().resource("dynamodb", endpoint_url=endpoint)
        self.way = way
        self.face = aio.dynamodb if awaited else fencing.dynamodb
        self.client.create_table(
            TableName=self.name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self.table = self.resource.Table(self.name)
        self.target = self.client if way == "client" else self.table

    def do(self, call: str, fence: Any, *arguments: Any, **request: Any) -> Any:
        """Call a function of the face, awaited where that is to be done."""
        if self.way == "client" and call not in ("transact", "setup"):
            request["TableName"] = self.name
        done = getattr(self.face, call)(self.target, fence, *arguments, **request)
        return asyncio.run(done) if inspect.iscoroutine(done) else done

    def id(self, row: str) -> Any:
        """The key of an item, as this way wants it."""
        return {"id": {"S": row}} if self.way == "client" else {"id": row}

    def text(self, value: str) -> Any:
        """A value, as this way wants it."""
        return {"S": value} if self.way == "client" else value

    def body(self, row: str) -> Any:
        """What was written last; None if nothing is there."""
        return self.table.get_item(Key={"id": row}).get("Item", {}).get("body")


@pytest.fixture(params=["client", "resource"])
def way(request: pytest.FixtureRequest) -> str:
    """boto3's two faces."""
    return str(request.param)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, way: str) -> Iterator[Site]:
    """Every kind of server; one of them through asyncio."""
    awaited = request.param == "moto"
    site = Site(shared(KINDS[request.param]).endpoint, way, awaited=awaited)
    yield site
    site.client.close()


@pytest.fixture
def local(way: str) -> Iterator[Site]:
    """AWS's own server for tests."""
    site = Site(shared(DynamoDBLocal).endpoint, way, awaited=False)
    yield site
    site.client.close()


def test_put_update_and_delete(site: Site) -> None:
    """A larger fence closes the item for smaller ones, by each of the three calls."""
    row, other = unique(), unique()
    site.do("put", Fence("k", 5), Item={**site.id(row), "body": site.text("first")})
    site.do("put", Fence("k", 5), Item={**site.id(row), "body": site.text("again")})
    update = {"UpdateExpression": "SET body = :b", "Key": site.id(row)}
    site.do("update", Fence("k", 9), **update, ExpressionAttributeValues={":b": site.text("later")})
    with pytest.raises(StaleFence) as refused:
        site.do("put", Fence("k", 6), Item={**site.id(row), "body": site.text("stale")})
    assert (refused.value.key, refused.value.fence) == ("k", 6)
    assert refused.value.remembered in (9, None)  # an old server does not tell
    with pytest.raises(StaleFence):
        site.do("delete", Fence("k", 6), Key=site.id(row))
    stale = {":b": site.text("stale")}
    with pytest.raises(StaleFence):
        site.do("update", Fence("k", 6), **update, ExpressionAttributeValues=stale)
    assert site.body(row) == "later"
    site.do("delete", Fence("k", 9), Key=site.id(row))
    assert site.body(row) is None
    site.do("update", Fence("k", 1), **{**update, "Key": site.id(other)},
            ExpressionAttributeValues={":b": site.text("new")})  # fmt: skip
    assert site.body(other) == "new"


def test_an_item_that_nobody_has_guarded_yet(local: Site) -> None:
    """It is written, and guarded from then on."""
    row = unique()
    local.table.put_item(Item={"id": row, "body": "before"})
    local.do("update", Fence("k", 3), Key=local.id(row), UpdateExpression="REMOVE body")
    with pytest.raises(StaleFence):
        local.do("put", Fence("k", 2), Item=local.id(row))


def test_conditions_of_ones_own(local: Site) -> None:
    """Both must hold, and boto3's error comes for the caller's."""
    row = unique()
    local.do("put", Fence("k", 5), Item={**local.id(row), "body": local.text("x")})
    own = {
        "ConditionExpression": "#b = :b OR #b = :c",
        "ExpressionAttributeNames": {"#b": "body"},
        "ExpressionAttributeValues": {":b": local.text("y"), ":c": local.text("z")},
    }
    with pytest.raises(local.client.exceptions.ConditionalCheckFailedException):
        local.do("delete", Fence("k", 5), Key=local.id(row), **own)
    with pytest.raises(StaleFence):
        local.do("delete", Fence("k", 4), Key=local.id(row), **own)
    missing = {**own, "Key": local.id(unique())}
    with pytest.raises(local.client.exceptions.ConditionalCheckFailedException):
        local.do("delete", Fence("k", 4), **missing)
    assert local.body(row) == "x"
    own["ExpressionAttributeValues"] = {":b": local.text("x"), ":c": local.text("z")}
    local.do("delete", Fence("k", 5), Key=local.id(row), **own)
    assert local.body(row) is None


def test_conditions_as_objects() -> None:
    """A resource takes them as boto3 builds them."""
    site, row = Site(shared(DynamoDBLocal).endpoint, "resource", awaited=False), unique()
    site.do("put", Fence("k", 5), Item={"id": row, "body": "x"})
    for condition, error in (
        (Attr("body").eq("y"), site.client.exceptions.ConditionalCheckFailedException),
        (Attr("body").eq("x"), StaleFence),
    ):
        fence = Fence("k", 5 if error is not StaleFence else 4)
        with pytest.raises(error):
            site.do("put", fence, Item={"id": row}, ConditionExpression=condition)
    site.do("update", Fence("k", 6), Key={"id": row}, ConditionExpression=Attr("body").eq("x"),
            UpdateExpression="SET body = :b", ExpressionAttributeValues={":b": "z"})  # fmt: skip
    assert site.body(row) == "z"
    site.client.close()


def test_an_item_of_another_key(local: Site) -> None:
    """Fences of different keys cannot be compared."""
    row = unique()
    local.do("put", Fence("one", 5), Item=local.id(row))
    for fence in (1, 9):
        with pytest.raises(KeyMismatch, match="guarded by 'one'"):
            local.do("put", Fence("two", fence), Item=local.id(row))


def test_transactions(site: Site) -> None:
    """All entries or none, in a table of ours; other reasons stay DynamoDB's."""
    if site.client.meta.endpoint_url == shared(OldDynamoDBLocal).endpoint:
        return  # it knows no transactions
    key, table = unique(), f"G{unique()[:12]}"
    for _ in range(2):
        done = site.face.setup(site.client, table=table)
        if done is not None:
            asyncio.run(done)

    def write(fence: int, row: str, condition: str | None = None) -> None:
        put: dict[str, Any] = {"TableName": site.name, "Item": site.id(row)}
        if condition:
            put["ConditionExpression"] = condition
        site.do("transact", Fence(key, fence), [{"Put": put}], table=table)

    first, stale = unique(), unique()
    write(5, first)
    write(7, first)
    with pytest.raises(StaleFence) as refused:
        write(6, stale)
    assert refused.value.remembered in (7, None)
    with pytest.raises(site.client.exceptions.TransactionCanceledException):
        write(8, first, "attribute_not_exists(id)")
    write(7, unique())  # what was cancelled is forgotten
    rows = {item["id"] for item in site.table.scan()["Items"]}
    assert first in rows
    assert stale not in rows


def test_an_entry_for_a_call_of_ones_own(local: Site) -> None:
    """The same entry, in a call of the application's."""
    fencing.dynamodb.setup(local.client)
    key = unique()
    for fence, fits in ((5, True), (4, False)):
        entry = fencing.dynamodb.entry(Fence(key, fence))
        try:
            local.client.transact_write_items(TransactItems=[entry])
        except local.client.exceptions.TransactionCanceledException:
            assert not fits
        else:
            assert fits


def test_a_table_of_somebody_else(local: Site) -> None:
    """It is left alone."""
    with pytest.raises(holdfast.ForeignStore, match="not made by Holdfast"):
        fencing.dynamodb.setup(local.target, table=local.name)


def test_bad_input(local: Site) -> None:
    """A lease that is over, what is no target, and parameters that cannot be guarded."""
    with memory_locks() as locks:
        lease = locks.acquire("k")
        lease.release()
        with pytest.raises(LeaseLost):
            local.do("put", lease, Item=local.id("x"))
    assert local.body("x") is None
    with pytest.raises(UsageError, match="boto3 client or Table"):
        fencing.dynamodb.put(object(), Fence("k", 1), Item={})
    with pytest.raises(holdfast.BadOption, match="ConditionExpression"):
        local.do("delete", Fence("k", 1), Key=local.id("x"), Expected={})
    with pytest.raises(local.client.exceptions.ClientError, match="ValidationException"):
        local.do("put", Fence("k", 1), Item={"nothing": local.text("x")})


def test_names_that_look_like_keywords(local: Site) -> None:
    """Only the SET of an update is taken for one."""
    row = unique()
    local.do("put", Fence("k", 1), Item={**local.id(row), "body": local.text("x")})
    local.do(
        "update", Fence("k", 2), Key=local.id(row),
        UpdateExpression="REMOVE older SET #SET = :set, body = :set",
        ExpressionAttributeNames={"#SET": "set"},
        ExpressionAttributeValues={":set": local.text("y")},
    )  # fmt: skip
    assert local.body(row) == "y"
    with pytest.raises(StaleFence):
        local.do("put", Fence("k", 1), Item=local.id(row))
