"""The `DynamoDBLockClient` of python-dynamodb-lock 0.9.1, on the same items, without its bugs.

Existing code only changes its import:

    from holdfast.dropin.python_dynamodb_lock import DynamoDBLockClient, DynamoDBLockError

    lock_client = DynamoDBLockClient(boto3.resource("dynamodb"))
    with lock_client.acquire_lock("my_key"):
        ...
    lock_client.close()

An item has the lock's keys, `owner_name`, `lease_duration`, `record_version_number` and
`expiry_time`, and whatever the application adds; whoever holds the lock changes the version
every few seconds. Workers with the original exclude these, and these them.

    models        the locks and the error, as callers see them
    table         the lock's item: what is asked of DynamoDB, and how a lock is read from it
    foreign_lock  somebody else's lock, and how we know that its holder is dead
    operations    take, renew, free
    heartbeat     when to renew, and when to report danger
    defaults      what holds unless a caller says otherwise
    client        the client

There is no fencing number: for that, use `holdfast.connect("dynamodb://…")`.
"""

from holdfast.extras import needed

with needed("holdfast.dropin.python_dynamodb_lock", "dynamodb"):
    from holdfast.dropin.python_dynamodb_lock.client import DynamoDBLockClient
    from holdfast.dropin.python_dynamodb_lock.models import (
        BaseDynamoDBLock,
        DynamoDBLock,
        DynamoDBLockError,
    )

__all__ = ["BaseDynamoDBLock", "DynamoDBLock", "DynamoDBLockClient", "DynamoDBLockError"]
