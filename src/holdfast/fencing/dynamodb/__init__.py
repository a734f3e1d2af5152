"""Items of DynamoDB that a stale holder cannot write: each write carries the condition.

fencing.dynamodb.put(table, lease, Item={"id": "7", "total": 12})
fencing.dynamodb.transact(client, lease, [{"Put": …}, {"Delete": …}])
"""

from holdfast.fencing.dynamodb.entry import entry
from holdfast.fencing.dynamodb.requests import FENCE, KEY, TABLE
from holdfast.fencing.dynamodb.writing import delete, put, setup, transact, update

__all__ = ["FENCE", "KEY", "TABLE", "delete", "entry", "put", "setup", "transact", "update"]
