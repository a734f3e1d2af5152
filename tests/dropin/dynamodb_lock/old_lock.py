"""What the class that pipelines have had does to the table, request by request."""

from __future__ import annotations

import time
from typing import Any

from botocore.exceptions import ClientError


class OldLock:
    """A conditional put, a conditional delete, and this machine's clock."""

    def __init__(self, dynamodb_resource: Any, table_name: str, ttl_seconds: int = 3600) -> None:
        self._table = dynamodb_resource.Table(table_name)
        self._ttl_seconds = ttl_seconds

    def acquire(self, lock_key: str, owner_id: str) -> bool:
        """Whether it was free."""
        now = int(time.time())
        item = {
            "lock_key": lock_key, "owner_id": owner_id,
            "acquired_at": now, "expires_at": now + self._ttl_seconds,
        }  # fmt: skip
        return _done(
            self._table.put_item, Item=item, ExpressionAttributeValues={":now": now},
            ConditionExpression="attribute_not_exists(lock_key) OR expires_at < :now",
        )  # fmt: skip

    def release(self, lock_key: str, owner_id: str) -> bool:
        """Whether it was this owner's."""
        return _done(
            self._table.delete_item, Key={"lock_key": lock_key},
            ConditionExpression="owner_id = :owner",
            ExpressionAttributeValues={":owner": owner_id},
        )  # fmt: skip

    def is_locked(self, lock_key: str) -> bool:
        """Whether somebody has it."""
        found = self._table.get_item(Key={"lock_key": lock_key}, ConsistentRead=True)
        return "Item" in found and bool(found["Item"]["expires_at"] >= int(time.time()))


def _done(call: Any, **request: Any) -> bool:
    try:
        call(**request)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            return False
        raise
    return True
