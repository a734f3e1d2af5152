"""One item per key: the record as JSON, its version, and what people and DynamoDB look at.

    lock_key      the key (the partition key; its name can be chosen)
    record        the record as JSON text; all that Holdfast itself reads
    version       new with every write, see `versions`
    owner_id      who holds the lock, for people
    acquired_at   since when, in epoch seconds, for people
    expires_at    until when, unless it is renewed, in epoch seconds, for people
    drop_at       when DynamoDB may delete the item (the table's TTL attribute)

`drop_at` is a day after the last use, by the service's own clock. From then on a new fence, which
starts at that clock, is larger than the fence in the item. Where the service's time was not known
at a write, there is no `drop_at`, and the item stays.
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
    """Records to items and back. `typed`: a value carries its type, as in {"S": "text"}; the
    client of a boto3 resource adds and removes the types itself."""

    key_name: str
    typed: bool = True

    def text(self, value: str) -> Any:
        """Returns a string in the client's format."""
        return {"S": value} if self.typed else value

    def number(self, value: int) -> Any:
        """Returns a number in the client's format."""
        return {"N": str(value)} if self.typed else value

    def key(self, key: str) -> Item:
        """Returns the primary key of an item."""
        return {self.key_name: self.text(key)}

    def item(self, key: str, version: str, record: Record, now: Interval | None) -> Item:
        """Returns the whole item."""
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
        """Returns the key of an item."""
        return str(_value(item[self.key_name]))

    def entry(self, item: Mapping[str, Any] | None, now: Interval | None) -> Entry:
        """Returns the entry in an item; None is no item."""
        if not item:
            return Entry(now=now)
        if not is_ours(item):
            raise ForeignStore(
                f"The item {self.key_of(item)!r} was not written by Holdfast, and is left alone: "
                f"use another key, or a table of its own."
            )
        return entry_from(_value(item[RECORD]), _value(item[VERSION]), now)


def is_ours(item: Mapping[str, Any]) -> bool:
    """Whether Holdfast wrote this item. Others may use attributes of the same names."""
    return isinstance(_value(item.get(RECORD)), str) and isinstance(_value(item.get(VERSION)), str)


def _value(attribute: Any) -> Any:
    """Returns the text of an attribute, with or without its type. If it is no text, returns None or
    whatever it is."""
    return attribute.get("S") if isinstance(attribute, dict) else attribute


def _drop_at(record: Record, now: Interval | None) -> int | None:
    """Returns when DynamoDB may delete the item, in whole seconds; None if it may not."""
    parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
    if now is None or not all(party.expires_at for party in parties):
        return None
    return _seconds_up(max(droppable_at(record), now.latest + TOMBSTONE))


def _seconds_up(at: int) -> int:
    return -(-at // SECOND)
