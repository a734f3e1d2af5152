"""DynamoDB, by AWS's own local server."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

from benchmarks.peers.base import Peer
from benchmarks.peers.floors import RECORD, SwapFloor
from benchmarks.sites import Place

RETRY = timedelta(seconds=0.1)


def _client(place: Place, make: str = "client") -> Any:
    endpoint = f"http://127.0.0.1:{place.port}"
    return getattr(import_module("boto3"), make)("dynamodb", endpoint_url=endpoint)


class PythonDynamoDBLock(Peer):
    """The Python twin of AWS's lock client for Java. Tries again every 0.1 s here; its default is
    5 s, the period of its heartbeat."""

    stores = ("dynamodb",)
    name = "python-dynamodb-lock"
    package = "python-dynamodb-lock"
    modules = ("python_dynamodb_lock.python_dynamodb_lock",)

    def __init__(self, place: Place) -> None:
        kind = import_module("python_dynamodb_lock.python_dynamodb_lock").DynamoDBLockClient
        resource = _client(place, "resource")
        with suppress(resource.meta.client.exceptions.ResourceInUseException):
            kind.create_dynamodb_table(resource.meta.client)
        self._locks = kind(resource)

    def lock(self, key: str) -> Any:
        return self._locks.acquire_lock(key, retry_period=RETRY)

    def close(self) -> None:
        self._locks.close()


class BareDynamoDB(SwapFloor):
    """boto3, with a condition on the version."""

    stores = ("dynamodb",)
    name = "bare UpdateItem, UpdateItem"
    package = "boto3"
    modules = ("boto3",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._client = _client(place)
        self._table = f"bare-{uuid4().hex}"
        self._client.create_table(
            TableName=self._table,
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        item = {"key": {"S": "k"}, "version": {"N": "0"}, "record": {"S": RECORD}}
        self._client.put_item(TableName=self._table, Item=item)

    def swap(self, parameters: tuple[object, ...]) -> None:
        new, record, key, old = map(str, parameters)
        self._client.update_item(
            TableName=self._table,
            Key={"key": {"S": key}},
            UpdateExpression="SET version = :new, #record = :record",
            ConditionExpression="version = :old",
            ExpressionAttributeNames={"#record": "record"},
            ExpressionAttributeValues={
                ":new": {"N": new}, ":record": {"S": record}, ":old": {"N": old},
            },
        )  # fmt: skip

    def close(self) -> None:
        self._client.delete_table(TableName=self._table)
        self._client.close()
