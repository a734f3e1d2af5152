"""The calls: boto3's own, with the condition added, and its refusals read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import ForeignStore, UsageError
from holdfast.fencing.dynamodb.requests import (
    CANCELLED,
    LOCK_KEY,
    REFUSED,
    TABLE,
    Values,
    check_cancelled,
    check_refused,
    code_of,
    entry_of,
    guarded,
    put_request,
    update_request,
)
from holdfast.fencing.gate import Fence, Fenced, fence_of
from holdfast.runtime.flavour import ASYNC

if ASYNC:
    import asyncio

Request = dict[str, Any]


async def put(target: Any, lease: Fenced, *, key: str | None = None, **request: Any) -> Request:
    """`put_item` unless a later holder has written the item. Returns what boto3 returns.

    `target` is a boto3 client, or a Table of a resource; the other arguments are boto3's. Raises
    `StaleFence` if a later holder has written the item. A condition of your own may be given; if
    that one fails, boto3's error comes as always.
    """
    return await _write(target, "put_item", put_request, fence_of(lease, key), request)


async def update(target: Any, lease: Fenced, *, key: str | None = None, **request: Any) -> Request:
    """`update_item` unless a later holder has written the item; see `put`."""
    return await _write(target, "update_item", update_request, fence_of(lease, key), request)


async def delete(target: Any, lease: Fenced, *, key: str | None = None, **request: Any) -> Request:
    """`delete_item` unless a later holder has written the item; see `put`.

    The fence goes with the item, so an older holder could create the item again. Where that must
    not happen, delete it in a transaction: `transact`.
    """
    return await _write(target, "delete_item", guarded, fence_of(lease, key), request)


async def transact(
    target: Any,
    lease: Fenced,
    items: Sequence[Request],
    *,
    key: str | None = None,
    table: str = TABLE,
    **request: Any,
) -> Request:
    """`transact_write_items` with the gate as its first entry, in a table that `setup` makes.

    `items` are puts, updates and deletes in any tables. `target` is a client, or a resource (or a
    Table of it) whose items have plain values. Raises `StaleFence` if a later holder was admitted
    before; then nothing is written.
    """
    fence = fence_of(lease, key)
    values, client = _values(target), _client(target)
    entries = [entry_of(fence, table, values), *items]
    try:
        return await _call(client.transact_write_items, {**request, "TransactItems": entries})
    except Exception as exc:
        if code_of(exc) == CANCELLED:
            check_cancelled(exc, fence)
        raise


async def setup(target: Any, *, table: str = TABLE) -> None:
    """Make the table for `transact` and `entry`, unless it is there, and wait for it."""
    client = _client(target)
    try:
        await _call(
            client.create_table,
            {
                "TableName": table,
                "KeySchema": [{"AttributeName": LOCK_KEY, "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": LOCK_KEY, "AttributeType": "S"}],
                "BillingMode": "PAY_PER_REQUEST",
            },
        )
    except Exception as exc:
        if code_of(exc) != "ResourceInUseException":
            raise
    await _call(client.get_waiter("table_exists").wait, {"TableName": table})
    found = await _call(client.describe_table, {"TableName": table})
    if [part["AttributeName"] for part in found["Table"]["KeySchema"]] != [LOCK_KEY]:
        raise ForeignStore(
            f"The table {table} was not made by Holdfast, and was left alone: name another one."
        )


async def _write(
    target: Any,
    call: str,
    make: Callable[[Request, Fence, Values], Request],
    fence: Fence,
    request: Request,
) -> Request:
    asked = make(request, fence, _values(target))
    try:
        return await _call(getattr(target, call), asked)
    except Exception as exc:
        if code_of(exc) == REFUSED:
            own = request.get("ConditionExpression") is not None
            check_refused(exc, fence, own_condition=own)
        raise


async def _call(call: Callable[..., Any], request: Request) -> Request:
    answer: Request
    if ASYNC:
        answer = await asyncio.to_thread(call, **request)
    else:
        answer = call(**request)
    return answer


def _client(target: Any) -> Any:
    client = target if hasattr(target, "transact_write_items") else _of_resource(target)
    if not hasattr(client, "transact_write_items"):
        raise UsageError(f"Give a boto3 client or Table of DynamoDB, not {type(target).__name__}.")
    return client


def _of_resource(target: Any) -> Any:
    return getattr(getattr(target, "meta", None), "client", None)


def _values(target: Any) -> Values:
    """Values have their types with a client, and none with a resource."""
    _client(target)
    return Values(typed=hasattr(target, "transact_write_items"))
