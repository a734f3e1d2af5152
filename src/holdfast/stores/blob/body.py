"""What is in an object: the record as JSON that a person can read, its key, and a nonce.

The nonce `write` makes every write's body unlike all others. On S3 an ETag is a digest of
the body, so without it an old ETag could fit again; and by it we know our own write when
something below us sent it twice and the second time was refused.

Nobody can delete an object only if it is still the same. So a dropped record leaves a small
mark behind, `"dropped": true`, that counts as no record.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.contract import Entry, Interval, Version
from holdfast.core.records import (
    UNREADABLE,
    Holder,
    Micros,
    Record,
    Waiter,
    encode,
    undecodable,
)
from holdfast.stores.base import entry_from, faulty_entry

Nonce = str
# Which write a party is of, for those that it left to the service's clock.
Mark = tuple[str, str]


class Label(Struct, omit_defaults=True):
    """What an object says beside the record."""

    key: str
    write: Nonce
    dropped: bool = False
    turn: Nonce = ""  # the last write that may have let somebody in, where it is kept


_label_decoder = msgspec.json.Decoder(Label)


def new_nonce() -> Nonce:
    """One that nobody else draws."""
    return secrets.token_hex(8)


def pack(key: str, nonce: Nonce, record: Record | None, turn: Nonce = "") -> bytes:
    """The body of an object; without a record, the mark of a dropped one."""
    label = msgspec.json.encode(Label(key, nonce, record is None, turn))
    if record is not None:
        label = label[:-1] + b"," + encode(record)[1:]
    return msgspec.json.format(label, indent=1)


def label_of(raw: bytes) -> Label | None:
    """The label; None if this is nothing of ours."""
    try:
        return _label_decoder.decode(raw)
    except UNREADABLE:
        return None


def unpack(key: str, raw: bytes, version: Version, now: Interval | None) -> Entry:
    """The entry in a body; what is not a record of this key is a fault."""
    label = label_of(raw)
    if label is None:
        return faulty_entry(undecodable(raw, "the object is not a lock record"), version, now)
    if label.key != key:
        fault = f"the object is that of {label.key!r} (do names here differ by more than case?)"
        return Entry(version=version, now=now, fault=fault)
    return Entry(now=now) if label.dropped else entry_from(raw, version, now)


# --- parties that leave their expiry to the service's clock -----------------------------------


def parties_of(record: Record) -> tuple[Holder | Waiter, ...]:
    """All who are in a record."""
    return (*record.holders, *record.queue)


def unclocked(record: Record) -> set[Mark]:
    """Those who were written without a reading of the clock."""
    return {(party.token, party.beat) for party in parties_of(record) if not party.expires_at}


def with_expiries(record: Record, expiries: dict[Mark, Micros]) -> Record:
    """The record with the expiries filled in that are known by now."""
    if not expiries:
        return record
    holders = tuple(_expiring(holder, expiries) for holder in record.holders)
    queue = tuple(_expiring(waiter, expiries) for waiter in record.queue)
    return replace(record, holders=holders, queue=queue)


def _expiring(party: Any, expiries: dict[Mark, Micros]) -> Any:
    expires_at = expiries.get((party.token, party.beat))
    if expires_at is None or party.expires_at:
        return party
    return replace(party, expires_at=expires_at)


def expiries_from(record: Record, written: Interval) -> dict[Mark, Micros]:
    """When the unclocked parties run out, whose write was carried out at that time."""
    return {
        (party.token, party.beat): written.latest + party.ttl
        for party in parties_of(record)
        if not party.expires_at
    }
