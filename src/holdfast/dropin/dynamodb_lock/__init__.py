"""The small `DynamoDBLock` that ingestion pipelines use, on the same items as theirs.

    from holdfast.dropin.dynamodb_lock import DynamoDBLock

    lock_manager = DynamoDBLock(table_name="ingestor-locks", ttl_seconds=3600)
    if lock_manager.acquire("pipeline:orders", "run-123"):
        try:
            ...
        finally:
            lock_manager.release("pipeline:orders", "run-123")

The table's partition key is `lock_key`; an item has `owner_id`, `expires_at` and
`acquired_at`. Workers with the class they had before exclude these, and these them.

There is no renewal and no fencing number: for those, use `holdfast.connect("dynamodb://…")`.
"""

from holdfast.extras import needed

with needed("holdfast.dropin.dynamodb_lock", "dynamodb"):
    from holdfast.dropin.dynamodb_lock.lock import DynamoDBLock

__all__ = ["DynamoDBLock"]
