"""One item per key: the record as JSON, its version, and what people and DynamoDB look at.

    lock_key      the key (the partition key; its name can be chosen)
    record        the whole truth, as JSON text
    version       new with every write, see `versions`
    owner_id      who holds it
    acquired_at   since when, and
    expires_at    until when unless they renew it: epoch seconds, for people
    drop_at       from when on DynamoDB may delete the item (the table's TTL attribute)

`drop_at` is a day after the last use by the service's own clock. From then on a new fence,
which starts at that clock, is larger than the one in the item. Where the time of a write was
not read from the service there is no `drop_at`, and the item stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from holdfast.core.contract import Entry, Interval
from holdfast.core.records import (
    SECOND,
    TOMBSTONE,
    Holder,
    Record,
    Waiter,
    droppable_at,
    encode,
)
from holdfast.errors import ForeignStore
from holdfast.stores.base import entry_from

RECORD, VERSION, DROP_AT = "record", "version", "drop_at"
MOST_OWNERS = 4

Item = dict[str, Any]


class ItemCodec(Struct, frozen=True):
    """How items are written. `typed`: a value says its type, as in {"S": "text"}; boto3's
    resources do that by themselves."""

    key_name: str
    typed: bool = True

    def text(self, value: str) -> Any:
        """A string, as the client wants it."""
        return {"S": value} if self.typed else value

    def number(self, value: int) -> Any:
        """A number, as the client wants it."""
        return {"N": str(value)} if self.typed else value

    def key(self, key: str) -> Item:
        """The primary key."""
        return {self.key_name: self.text(key)}

    def item(self, key: str, version: str, record: Record, now: Interval | None) -> Item:
        """The whole item."""
        item = {
            self.key_name: self.text(key),
            RECORD: self.text(encode(record).decode()),
            VERSION: self.text(version),
        }
        if record.holders:
            item |= self._for_people(record)
        drop_at = _drop_at(record, now)
        if drop_at is not None:
            item[DROP_AT] = self.number(drop_at)
        return item

    def _for_people(self, record: Record) -> Item:
        holders = record.holders
        names = list(dict.fromkeys(holder.owner for holder in holders))
        more = [f"+{len(names) - MOST_OWNERS}"] if len(names) > MOST_OWNERS else []
        ends = (holder.expires_at or record.updated_at + holder.ttl for holder in holders)
        return {
            "owner_id": self.text(", ".join(names[:MOST_OWNERS] + more)),
            "acquired_at": self.number(min(h.acquired_at for h in holders) // SECOND),
            "expires_at": self.number(_seconds_up(max(ends))),
        }

    # --- and back ---------------------------------------------------------------------------

    def key_of(self, item: Mapping[str, Any]) -> str:
        """The key of an item."""
        return str(_value(item[self.key_name]))

    def entry(self, item: Mapping[str, Any] | None, now: Interval | None) -> Entry:
        """What an item says."""
        if not item:
            return Entry(now=now)
        if not is_ours(item):
            raise ForeignStore(
                f"The item {self.key_of(item)!r} was not written by Holdfast, and is left alone: "
                f"use another key, or a table of its own."
            )
        return entry_from(_value(item[RECORD]), _value(item[VERSION]), now)


def is_ours(item: Mapping[str, Any]) -> bool:
    """Whether Holdfast wrote this item: others may have attributes of the same names, too."""
    return isinstance(_value(item.get(RECORD)), str) and isinstance(_value(item.get(VERSION)), str)


def _value(attribute: Any) -> Any:
    """The text of an attribute, whether or not the client took its type off; None, or something
    else, if it is no text."""
    return attribute.get("S") if isinstance(attribute, dict) else attribute


def _drop_at(record: Record, now: Interval | None) -> int | None:
    """From when on DynamoDB may delete the item, in whole seconds; None: it may not."""
    parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
    if now is None or not all(party.expires_at for party in parties):
        return None
    return _seconds_up(max(droppable_at(record), now.latest + TOMBSTONE))


def _seconds_up(at: int) -> int:
    return -(-at // SECOND)
