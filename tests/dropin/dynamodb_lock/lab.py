"""A table for the small lock, and both kinds of it."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.dropin.dynamodb_lock import DynamoDBLock
from tests.dropin.dynamodb import resource
from tests.dropin.dynamodb_lock.old_lock import OldLock
from tests.helpers import unique

Whose = Literal["old", "new"]


class Lab:
    """A table of its own, or one that is there."""

    def __init__(self, endpoint: str, table: str | None = None) -> None:
        self.endpoint = endpoint
        self.resource = resource(endpoint)
        self.table = table or f"locks-{unique()}"
        if table is None:
            self._create()

    def lock(self, whose: Whose = "new", through: str | None = None, ttl_seconds: int = 60) -> Any:
        """A lock manager."""
        whence = self.resource if through is None else resource(through, timeout_s=1.0)
        if whose == "old":
            return OldLock(whence, self.table, ttl_seconds)
        return DynamoDBLock(self.table, ttl_seconds, dynamodb_resource=whence)

    def item(self, key: str = "k") -> dict[str, Any] | None:
        """What is on the table."""
        found = self.resource.Table(self.table).get_item(Key={"lock_key": key}, ConsistentRead=True)
        item: dict[str, Any] | None = found.get("Item")
        return item

    def put(self, **attributes: Any) -> None:
        """Write an item without asking anybody."""
        self.resource.Table(self.table).put_item(Item={"lock_key": "k", **attributes})

    def close(self) -> None:
        """Let go of everything."""
        self.resource.meta.client.close()

    def _create(self) -> None:
        client = self.resource.meta.client
        client.create_table(
            TableName=self.table,
            KeySchema=[{"AttributeName": "lock_key", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "lock_key", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.get_waiter("table_exists").wait(TableName=self.table, WaiterConfig={"Delay": 1})
