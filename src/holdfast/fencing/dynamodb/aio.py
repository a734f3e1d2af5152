"""The same, awaited: boto3's calls run in threads."""

from holdfast.fencing.dynamodb.entry import entry
from holdfast.fencing.dynamodb.requests import FENCE, KEY, TABLE
from holdfast.fencing.dynamodb.writing_async import delete, put, setup, transact, update

__all__ = ["FENCE", "KEY", "TABLE", "delete", "entry", "put", "setup", "transact", "update"]
