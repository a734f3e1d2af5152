"""The requests that are made of a table, each answered or in trouble in our own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore import exceptions as boto
from msgspec import Struct

from holdfast.core.contract import Entry, Interval, Version
from holdfast.errors import Unavailable
from holdfast.stores.dynamodb.clock import HeaderClock
from holdfast.stores.dynamodb.connect import Adopted
from holdfast.stores.dynamodb.errors import (
    CONDITION_FAILED,
    Doing,
    code_of,
    is_answer,
    refuse_half,
    trouble,
    was_retried,
)
from holdfast.stores.dynamodb.items import RECORD, VERSION, Item, Layout, is_ours
from holdfast.stores.url import redact

MOST_KEYS = 100  # of a BatchGetItem

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class Failed(Struct, frozen=True):
    """A condition was not met. The item that is there, if the server tells it."""

    item: Item | None
    now: Interval | None
    sent_twice: bool  # an earlier attempt of botocore's may have met it


class Table:
    """One table, through one low-level client."""

    def __init__(self, adopted: Adopted) -> None:
        self.name = adopted.options.table
        self.layout = Layout(adopted.options.partition_key, adopted.typed)
        self.clock = HeaderClock(adopted.options.clock_margin)
        self.client: Any = adopted.client
        received = "response-received.dynamodb"
        self.client.meta.events.register(received, refuse_half, refuse_half.__name__)
        self._owned = adopted.owned
        self._tries_again = not adopted.owned and _tries_again(adopted.client)
        meta = adopted.client.meta
        where = redact(meta.endpoint_url)
        self.place = f"DynamoDB table {self.name} in {meta.region_name} ({where})"

    # --- items ------------------------------------------------------------------------------

    def get(self, key: str) -> tuple[Item | None, Interval | None]:
        """The item, and the time."""
        reply = self.call("get_item", "reading", Key=self.layout.key(key), ConsistentRead=True)
        return reply.get("Item"), self._now(reply)

    def put(self, item: Item, version: Version) -> Interval | Failed | None:
        """Write it if that version is there; the time."""
        return self._write("put_item", version, Item=item)

    def delete(self, key: str, version: Version) -> Interval | Failed | None:
        """Delete it if that version is there; the time."""
        return self._write("delete_item", version, Key=self.layout.key(key))

    def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Those that are there, for those who wait: only a hint, so a read that may be a moment
        behind will do, at half the price."""
        found: dict[str, Entry] = {}
        for start in range(0, len(keys), MOST_KEYS):
            found |= self._some_entries(keys[start : start + MOST_KEYS])
        return found

    def _some_entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        asked = {"Keys": [self.layout.key(key) for key in keys]}
        reply = self._send("batch_get_item", "reading", RequestItems={self.name: asked})
        if reply.get("UnprocessedKeys"):
            raise Unavailable(f"{self.place}: it has no capacity left.")
        items, now = reply.get("Responses", {}).get(self.name, ()), self._now(reply)
        layout = self.layout
        return {layout.key_of(one): layout.entry(one, now) for one in items if is_ours(one)}

    def items(self, prefix: str, after: str | None) -> Iterator[tuple[Item, Interval | None]]:
        """All items whose keys start like this and come after that one, in no order."""
        tests = ["attribute_exists(#r)", "attribute_exists(#v)"]
        values = {}
        if prefix:
            tests.append("begins_with(#k, :prefix)")
            values[":prefix"] = self.layout.text(prefix)
        if after is not None:
            tests.append("#k > :after")
            values[":after"] = self.layout.text(after)
        names = {"#r": RECORD, "#v": VERSION, **({"#k": self.layout.key_name} if values else {})}
        arguments: dict[str, Any] = {
            "ConsistentRead": True,
            "FilterExpression": " AND ".join(tests),
            "ExpressionAttributeNames": names,
            **({"ExpressionAttributeValues": values} if values else {}),
        }
        while True:
            reply = self.call("scan", "reading", **arguments)
            now = self._now(reply)
            yield from ((item, now) for item in reply.get("Items", ()) if is_ours(item))
            if "LastEvaluatedKey" not in reply:
                return
            arguments["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    # --- requests ---------------------------------------------------------------------------

    def call(self, name: str, doing: Doing, **arguments: Any) -> Mapping[str, Any]:
        """Anything that is said about this table."""
        return self._send(name, doing, TableName=self.name, **arguments)

    def close(self) -> None:
        """Close the client, if it is ours."""
        if self._owned:
            self.client.close()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        _abandoned.append(_connections(self.client) if self._owned else self.client)
        self.client = None  # the rest of it is megabytes

    def _send(self, name: str, doing: Doing, **arguments: Any) -> Mapping[str, Any]:
        tries = 2 if doing == "reading" else 1
        while True:
            tries -= 1
            try:
                return self._once(name, arguments)
            except (boto.BotoCoreError, boto.ClientError) as exc:
                # A connection may have been idle for too long without anybody noticing.
                if not tries or not isinstance(exc, boto.ConnectionClosedError):
                    raise self._trouble(exc, doing) from exc

    def _write(self, name: str, version: Version, **what: Any) -> Interval | Failed | None:
        arguments = {
            "TableName": self.name,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **self._condition(version),
            **what,
        }
        try:
            return self._now(self._once(name, arguments))
        except (boto.BotoCoreError, boto.ClientError) as exc:
            if code_of(exc) != CONDITION_FAILED:
                raise self._trouble(exc, "writing") from exc
            response: Mapping[str, Any] = exc.response
            return Failed(response.get("Item"), self._now(response), was_retried(exc))

    def _condition(self, version: Version) -> dict[str, Any]:
        if version is None:
            return {
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": {"#k": self.layout.key_name},
            }
        return {
            "ConditionExpression": "#v = :v",
            "ExpressionAttributeNames": {"#v": VERSION},
            "ExpressionAttributeValues": {":v": self.layout.text(version)},
        }

    def _once(self, name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        reply: Mapping[str, Any] = getattr(self.client, name)(**arguments)
        return reply

    def _now(self, reply: Mapping[str, Any]) -> Interval | None:
        headers = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return self.clock.read(headers)

    def _trouble(self, exc: Exception, doing: Doing) -> Exception:
        sent_twice = was_retried(exc) if is_answer(exc) else self._tries_again
        return trouble(exc, doing, self.place, sent_twice=sent_twice)


def _connections(client: Any) -> Any:
    """What has the connections of a client; if that cannot be found, the client."""
    return getattr(getattr(client, "_endpoint", None), "http_session", client)


def _tries_again(client: Any) -> bool:
    """Whether a client of somebody else's may send a request more than once."""
    retries = client.meta.config.retries or {}
    return bool(retries.get("total_max_attempts", 0) != 1 and retries.get("max_attempts") != 0)
