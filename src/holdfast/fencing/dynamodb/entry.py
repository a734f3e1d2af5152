"""The gate as an entry of the caller's own `transact_write_items`."""

from __future__ import annotations

from typing import Any

from holdfast.fencing.dynamodb.requests import TABLE, Values, entry_of
from holdfast.fencing.gate import Fenced, fence_of


def entry(
    lease: Fenced, *, key: str | None = None, table: str = TABLE, typed: bool = True
) -> dict[str, Any]:
    """Returns an entry for `TransactItems`, for a call of your own: make it the first one.

    If a later holder was admitted before, DynamoDB cancels the transaction with the reason
    `ConditionalCheckFailed` for this entry (`transact` raises `StaleFence` instead). `typed=False`
    is for the client of a resource.
    """
    return entry_of(fence_of(lease, key), table, Values(typed=typed))
