"""What is asked of DynamoDB, and what its refusals mean. Pure: there is no I/O here.

An item that is written through here carries the key and the fence of its last writer, in two
attributes, and every write has the condition that they are not newer. So the check rides on the
write. A transaction brings the gate as one more item, in a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from holdfast.errors import BadOption, StaleFence
from holdfast.fencing.gate import Fence, check_admitted, check_same_key

FENCE, KEY = "holdfast_fence", "holdfast_key"  # the attributes of a guarded item
TABLE, LOCK_KEY = "holdfast_fences", "lock_key"  # the table for transactions, and its hash key
_OURS = "attribute_not_exists(#hf_fence) OR (#hf_key = :hf_key AND #hf_fence <= :hf_fence)"
_NAMES = {"#hf_fence": FENCE, "#hf_key": KEY}
_SET = re.compile(r"(?<![#:\w.])SET\s", re.IGNORECASE)
# Parameters of old, which cannot go together with expressions.
_OLD = ("Expected", "ConditionalOperator", "AttributeUpdates")
REFUSED = "ConditionalCheckFailedException"
CANCELLED = "TransactionCanceledException"


class Values(Struct, frozen=True):
    """How values are written: with their types for a client, plainly for a resource."""

    typed: bool

    def text(self, value: str) -> Any:
        """Returns a string."""
        return {"S": value} if self.typed else value

    def number(self, value: int) -> Any:
        """Returns a number."""
        return {"N": str(value)} if self.typed else value


def guarded(request: Mapping[str, Any], fence: Fence, values: Values) -> dict[str, Any]:
    """Returns a request that is carried out only for this fence or a smaller one in the item."""
    if old := [name for name in _OLD if name in request]:
        raise BadOption(f"{old[0]} cannot be guarded: write it as a ConditionExpression.")
    own = request.get("ConditionExpression")
    # One that the caller asks for stays. The item tells whose condition it was that failed.
    asked = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD", **request}
    if own is not None and not isinstance(own, str):
        return {**asked, "ConditionExpression": own & _as_objects(fence)}
    return {
        **asked,
        "ConditionExpression": f"({own}) AND ({_OURS})" if own else _OURS,
        "ExpressionAttributeNames": {**_NAMES, **request.get("ExpressionAttributeNames", {})},
        "ExpressionAttributeValues": {
            ":hf_key": values.text(fence.key),
            ":hf_fence": values.number(fence.fence),
            **request.get("ExpressionAttributeValues", {}),
        },
    }


def _as_objects(fence: Fence) -> Any:
    """Returns our condition as boto3's objects, to go with one of the caller's."""
    from boto3.dynamodb.conditions import Attr

    known = Attr(KEY).eq(fence.key) & Attr(FENCE).lte(fence.fence)
    return Attr(FENCE).not_exists() | known


def put_request(request: Mapping[str, Any], fence: Fence, values: Values) -> dict[str, Any]:
    """Returns a `put_item` that leaves the fence in the item."""
    item = {
        **request.get("Item", {}),
        KEY: values.text(fence.key),
        FENCE: values.number(fence.fence),
    }
    return guarded({**request, "Item": item}, fence, values)


def update_request(request: Mapping[str, Any], fence: Fence, values: Values) -> dict[str, Any]:
    """Returns an `update_item` that leaves the fence in the item."""
    asked = guarded(request, fence, values)
    # With a condition made of boto3's objects these are not there yet.
    names = {**_NAMES, **asked.get("ExpressionAttributeNames", {})}
    given = asked.get("ExpressionAttributeValues", {})
    mine = {":hf_key": values.text(fence.key), ":hf_fence": values.number(fence.fence)}
    return {
        **asked,
        "UpdateExpression": _with_fence(request.get("UpdateExpression", "")),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {**mine, **given},
    }


def _with_fence(expression: str) -> str:
    """Returns an update that sets our attributes, too. There can be only one SET in it."""
    ours = "SET #hf_key = :hf_key, #hf_fence = :hf_fence"
    found = _SET.search(expression)
    if found is None:
        return f"{ours} {expression}".strip()
    return f"{expression[: found.start()]}{ours}, {expression[found.end() :]}"


def entry_of(fence: Fence, table: str, values: Values) -> dict[str, Any]:
    """Returns the entry for a transaction: the gate in a table of its own."""
    return {
        "Update": {
            "TableName": table,
            "Key": {LOCK_KEY: values.text(fence.key)},
            "UpdateExpression": "SET #fence = :fence",
            "ConditionExpression": "attribute_not_exists(#fence) OR #fence <= :fence",
            "ExpressionAttributeNames": {"#fence": "fence"},
            "ExpressionAttributeValues": {":fence": values.number(fence.fence)},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


# --- refusals ---------------------------------------------------------------------------------


def code_of(exc: BaseException) -> str:
    """Returns DynamoDB's name for an error; empty if it is not one of its own."""
    response = getattr(exc, "response", None)
    return response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""


def check_refused(exc: Any, fence: Fence, *, own_condition: bool) -> None:
    """Raise `StaleFence` if it was our condition that failed."""
    item = exc.response.get("Item")
    if item is None:
        # Nothing is there, and then ours holds; or an old server that does not tell.
        if not own_condition:
            raise _stale(fence)
        return
    if KEY in item:
        check_same_key(fence, item[KEY]["S"])
    check_admitted(fence, _number(item, FENCE))


def check_cancelled(exc: Any, fence: Fence) -> None:
    """Raise `StaleFence` if our entry, the first one, is why a transaction was cancelled."""
    reasons = exc.response.get("CancellationReasons") or [{}]
    if reasons[0].get("Code") == "ConditionalCheckFailed":
        check_admitted(fence, _number(reasons[0].get("Item", {}), "fence"))
        raise _stale(fence)


def _number(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _stale(fence: Fence) -> StaleFence:
    return StaleFence(
        f"A later holder of {fence.key!r} than the one with fence {fence.fence} has written: "
        f"nothing was written. Stop, the lock is no longer yours.",
        key=fence.key,
        fence=fence.fence,
    )
