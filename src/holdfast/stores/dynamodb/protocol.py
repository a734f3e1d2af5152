"""Load, swap and scan as requests to one DynamoDB table.

The functions are generators with the suffix `_calls`: they yield a `Request`, get a `Reply` or,
for a write whose condition was not met, a `NotMet`, and return the answer.

Every write is a PutItem or DeleteItem with a condition on the version, so it may arrive twice or
late and changes nothing then. The writer draws the version: a client that finds its own version in
an item knows that its write was carried out, whatever the reply said.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.core.commands import Wake
from holdfast.core.contract import Conflict, Entry, Interval, Page, Swapped, Version
from holdfast.core.records import Record
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.stores.base import Outcome
from holdfast.stores.dynamodb.codec import RECORD, VERSION, Item, ItemCodec, is_ours
from holdfast.stores.dynamodb.versions import next_version

R = TypeVar("R")
Doing = Literal["reading", "writing", "setting up"]

MOST_KEYS = 100  # of a BatchGetItem


class Request(Struct, frozen=True):
    """One operation of DynamoDB, by the name that it has in boto3."""

    operation: str
    doing: Doing
    arguments: Mapping[str, Any]


class Reply(Struct, frozen=True):
    """What the service replied, and its clock."""

    body: Mapping[str, Any]
    now: Interval | None


class NotMet(Struct, frozen=True):
    """The condition of a write was not met.

    `item` is the item that is there, if the server tells it. `sent_twice`: botocore had sent the
    write before, and that attempt may have met the condition.
    """

    item: Item | None
    now: Interval | None
    sent_twice: bool


Calls: TypeAlias = Generator[Request, Any, R]


class Protocol:
    """What is asked of one table. `where` names the table in messages."""

    def __init__(self, table: str, codec: ItemCodec, where: str) -> None:
        self.codec = codec
        self._table = table
        self._where = where

    # --- load and swap ----------------------------------------------------------------------

    def load_calls(self, key: str) -> Calls[Entry]:
        """One consistent GetItem."""
        reply: Reply = yield self._request(
            "get_item", "reading", Key=self.codec.key(key), ConsistentRead=True
        )
        return self.codec.entry(reply.body.get("Item"), reply.now)

    def swap_calls(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake,
        clock: Interval | None,
    ) -> Calls[Outcome]:
        """One PutItem or DeleteItem; and a GetItem if the condition was not met and the server
        does not tell what is there. `clock` is the service's time as it was last read."""
        written = None
        what: dict[str, Any] = {"Key": self.codec.key(key)}
        if record is not None:
            written = next_version(version, wake)
            what = {"Item": self.codec.item(key, written, record, clock)}
        answer: Reply | NotMet = yield self._request(
            "delete_item" if record is None else "put_item",
            "writing",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **self._condition(version),
            **what,
        )
        if isinstance(answer, Reply):
            return Swapped(written, answer.now)
        return (yield from self._not_met_calls(key, answer, written))

    def _not_met_calls(self, key: str, answer: NotMet, written: Version) -> Calls[Outcome]:
        if answer.item is not None:
            entry = self.codec.entry(answer.item, answer.now)
        elif answer.sent_twice:
            raise self._sent_twice()
        else:
            entry = yield from self.load_calls(key)
        if written is not None and entry.version == written:
            return Swapped(written, entry.now)  # the first of two attempts was carried out
        if answer.sent_twice:  # the first attempt may have been carried out, and overwritten since
            raise self._sent_twice()
        return Conflict(entry)

    def _sent_twice(self) -> OutcomeUnknown:
        return OutcomeUnknown(f"{self._where}: a write was sent twice.")

    def _condition(self, version: Version) -> dict[str, Any]:
        if version is None:
            return {
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": {"#k": self.codec.key_name},
            }
        return {
            "ConditionExpression": "#v = :v",
            "ExpressionAttributeNames": {"#v": VERSION},
            "ExpressionAttributeValues": {":v": self.codec.text(version)},
        }

    # --- many records -----------------------------------------------------------------------

    def entries_calls(self, keys: Sequence[str]) -> Calls[dict[str, Entry]]:
        """The records of those keys that have one, for callers that wait. It is only a hint, so
        the reads may be a moment behind, at half the price."""
        found: dict[str, Entry] = {}
        for start in range(0, len(keys), MOST_KEYS):
            asked = {"Keys": [self.codec.key(key) for key in keys[start : start + MOST_KEYS]]}
            arguments = {"RequestItems": {self._table: asked}}
            reply: Reply = yield Request("batch_get_item", "reading", arguments)
            if reply.body.get("UnprocessedKeys"):
                raise Unavailable(f"{self._where}: it has no capacity left.")
            for item in reply.body.get("Responses", {}).get(self._table, ()):
                if is_ours(item):
                    found[self.codec.key_of(item)] = self.codec.entry(item, reply.now)
        return found

    def scan_calls(self, prefix: str, cursor: str | None, limit: int) -> Calls[Page]:
        """A Scan of the whole table, which has no order: the next keys are picked out."""
        arguments = self._scan_arguments(prefix, cursor)
        picked: list[tuple[str, Item, Interval | None]] = []
        while True:
            reply: Reply = yield self._request("scan", "reading", **arguments)
            ours = (item for item in reply.body.get("Items", ()) if is_ours(item))
            found = ((self.codec.key_of(item), item, reply.now) for item in ours)
            picked = nsmallest(limit, (*picked, *found), key=lambda one: one[0].encode())
            if "LastEvaluatedKey" not in reply.body:
                break
            arguments["ExclusiveStartKey"] = reply.body["LastEvaluatedKey"]
        entries = tuple((key, self.codec.entry(item, now)) for key, item, now in picked)
        return Page(entries, picked[-1][0] if picked and len(picked) == limit else None)

    def _scan_arguments(self, prefix: str, after: str | None) -> dict[str, Any]:
        tests = ["attribute_exists(#r)", "attribute_exists(#v)"]
        names, values = {"#r": RECORD, "#v": VERSION}, {}
        if prefix:
            tests.append("begins_with(#k, :prefix)")
            values[":prefix"] = self.codec.text(prefix)
        if after is not None:
            tests.append("#k > :after")
            values[":after"] = self.codec.text(after)
        arguments: dict[str, Any] = {
            "ConsistentRead": True,
            "FilterExpression": " AND ".join(tests),
            "ExpressionAttributeNames": names,
        }
        if values:
            names["#k"] = self.codec.key_name
            arguments["ExpressionAttributeValues"] = values
        return arguments

    def _request(self, operation: str, doing: Doing, **arguments: Any) -> Request:
        return Request(operation, doing, {"TableName": self._table, **arguments})
