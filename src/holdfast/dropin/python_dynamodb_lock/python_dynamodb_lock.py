"""The same names where the original has them: in a module of the package's own name."""

from holdfast.dropin.python_dynamodb_lock import (
    BaseDynamoDBLock,
    DynamoDBLock,
    DynamoDBLockClient,
    DynamoDBLockError,
)

__all__ = ["BaseDynamoDBLock", "DynamoDBLock", "DynamoDBLockClient", "DynamoDBLockError"]
