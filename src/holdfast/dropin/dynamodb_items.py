"""The items of a DynamoDB table, for the drop-ins that keep a lock in one item.

1. A refusal of a write shows the item that is there. A client that finds its own nonce in it
   knows that an earlier attempt was carried out, although its reply was lost.
2. botocore sends a request again by itself when a reply does not come, and reports that only in
   the metadata. Then the answer is `doubted`: the first attempt may have been carried out.
3. Every reply contains the service's time, in whole seconds, in its `Date` header. (Old versions
   of DynamoDB Local do not send it.) Between replies our monotonic clock carries it on, as
   `holdfast.core.validity` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError

from holdfast.core.records import SECOND, Micros
from holdfast.core.validity import RATE, Reading
from holdfast.runtime import clock
from holdfast.stores.dynamodb.errors import CONDITION_FAILED, code_of, was_retried
from holdfast.stores.dynamodb.header_clock import HeaderClock

Item = dict[str, Any]

# How far the clock of one of the service's machines may be off.
CLOCK_MARGIN: Micros = SECOND // 2
NOT_ALLOWED = "AccessDeniedException"

_plain = TypeDeserializer().deserialize


class Condition(NamedTuple):
    """What must be true of the item for a write to be carried out."""

    expression: str
    names: Mapping[str, str] = {}
    values: Mapping[str, Any] = {}

    def request(self) -> dict[str, Any]:
        """Returns the arguments of a request, without empty ones."""
        parts = {
            "ConditionExpression": self.expression,
            "ExpressionAttributeNames": dict(self.names),
            "ExpressionAttributeValues": dict(self.values),
        }
        return {name: part for name, part in parts.items() if part}


class Answer(NamedTuple):
    """What became of a write. If it was refused: the item that is there (None: there is none)."""

    done: bool
    item: Item | None = None
    doubted: bool = False


class ServiceClock:
    """The service's time by its last reply, carried on by our clock for as long as it takes: each
    second since then adds a little doubt."""

    def __init__(self) -> None:
        self._header = HeaderClock(CLOCK_MARGIN)
        self._reading: Reading | None = None
        self._asked = False

    def hear(self, metadata: Mapping[str, Any], sent: Micros) -> None:
        """Read the time in a reply to a request that was sent at `sent`."""
        self._asked = True
        now = self._header.read(metadata.get("HTTPHeaders", {}))
        if now is not None:
            self._reading = Reading(now, sent, clock.monotonic())

    @property
    def unknown(self) -> bool:
        """Whether a request should be made to learn the time: there was none yet, or long ago."""
        reading = self._reading
        return not self._asked or (reading is not None and reading.at(clock.monotonic()) is None)

    def latest(self) -> Micros | None:
        """Returns the latest that the service's clock may show; None if no reply told the time."""
        reading = self._reading
        if reading is None or reading.now is None:
            return None
        elapsed = max(0, clock.monotonic() - reading.sent)
        return reading.now.latest + elapsed + elapsed // RATE + 1

    def earliest(self) -> Micros | None:
        """Returns what the service's clock has surely reached; None if no reply told the time."""
        reading = self._reading
        if reading is None or reading.now is None:
            return None
        elapsed = max(0, clock.monotonic() - reading.got)
        return reading.now.earliest + elapsed - elapsed // RATE


class Items:
    """The items of one table, and the clock of its service.

    A resource's client is safe for threads; the resource itself is not.
    """

    def __init__(self, dynamodb_resource: Any, table_name: str) -> None:
        self._client = dynamodb_resource.meta.client
        self._table_name = table_name
        self.clock = ServiceClock()

    def get(self, key: Mapping[str, str]) -> Item | None:
        """Returns the item with this key, by a consistent read."""
        reply = self._ask(self._client.get_item, Key=dict(key), ConsistentRead=True)
        item: Item | None = reply.get("Item")
        return item

    def put(self, key: Mapping[str, str], item: Item, condition: Condition) -> Answer:
        """Write an item, replacing the one that is there."""
        return self._write(self._client.put_item, key, condition, Item={**item, **key})

    def update(self, key: Mapping[str, str], change: str, condition: Condition) -> Answer:
        """Change some of an item's attributes."""
        return self._write(
            self._client.update_item, key, condition, Key=dict(key), UpdateExpression=change
        )

    def delete(self, key: Mapping[str, str], condition: Condition) -> Answer:
        """Remove an item."""
        return self._write(self._client.delete_item, key, condition, Key=dict(key))

    def deletes_expired(self, attribute: str) -> bool:
        """Whether DynamoDB deletes an item once the time in this attribute is over."""
        found = self._ask(self._client.describe_time_to_live)["TimeToLiveDescription"]
        return bool(
            found.get("TimeToLiveStatus") == "ENABLED" and found["AttributeName"] == attribute
        )

    def _write(
        self, call: Callable[..., Any], key: Mapping[str, str], condition: Condition, **request: Any
    ) -> Answer:
        request.update(condition.request(), ReturnValuesOnConditionCheckFailure="ALL_OLD")
        try:
            self._ask(call, **request)
        except ClientError as error:
            if code_of(error) != CONDITION_FAILED:
                raise
            return Answer(False, self._shown(error) or self._looked_up(key), was_retried(error))
        return Answer(True)

    def _ask(self, call: Callable[..., Any], **request: Any) -> dict[str, Any]:
        sent = clock.monotonic()
        try:
            reply: dict[str, Any] = call(TableName=self._table_name, **request)
        except ClientError as error:
            self.clock.hear(error.response.get("ResponseMetadata", {}), sent)
            raise
        self.clock.hear(reply.get("ResponseMetadata", {}), sent)
        return reply

    def _looked_up(self, key: Mapping[str, str]) -> Item | None:
        """Returns the item, for servers that do not show it. A client that may not read has a newer
        server, which does: then there is none."""
        try:
            return self.get(key)
        except ClientError as error:
            if code_of(error) != NOT_ALLOWED:
                raise
            return None

    def _shown(self, error: ClientError) -> Item | None:
        """Returns the item that comes with a refusal, from servers that send it."""
        return {name: _plain(value) for name, value in error.response.get("Item", {}).items()}
