"""What is in an object: the record as JSON that a person can read, its key, and a nonce.

The nonce `write` makes the body of every write unique. On S3 an ETag is a digest of the body, so
without a nonce an old ETag could match again. By the nonce we also recognise our own write when a
layer below us sent it twice and the second attempt was refused.

An object cannot be deleted on condition that it is still the same. So a dropped record leaves a
small mark, `"dropped": true`, which counts as no record.
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
# Token and beat: which write a party was written by.
Mark = tuple[str, str]


class Label(Struct, omit_defaults=True):
    """What an object says beside the record."""

    key: str
    write: Nonce
    dropped: bool = False
    turn: Nonce = ""  # in a directory: the last write that may have let a waiting call in


_label_decoder = msgspec.json.Decoder(Label)


def new_nonce() -> Nonce:
    """Returns a nonce that nobody else draws."""
    return secrets.token_hex(8)


def pack(key: str, nonce: Nonce, record: Record | None, turn: Nonce = "") -> bytes:
    """Returns the body of an object; without a record, the mark of a dropped one."""
    label = msgspec.json.encode(Label(key, nonce, record is None, turn))
    if record is not None:
        label = label[:-1] + b"," + encode(record)[1:]
    return msgspec.json.format(label, indent=1)


def label_of(raw: bytes) -> Label | None:
    """Returns the label; None if Holdfast did not write this."""
    try:
        return _label_decoder.decode(raw)
    except UNREADABLE:
        return None


def unpack(key: str, raw: bytes, version: Version, now: Interval | None) -> Entry:
    """Returns the entry in a body, with a fault if it is not a record of this key."""
    label = label_of(raw)
    if label is None:
        return faulty_entry(undecodable(raw, "the object is not a lock record"), version, now)
    if label.key != key:
        fault = f"the object is that of {label.key!r} (do names here differ by more than case?)"
        return Entry(version=version, now=now, fault=fault)
    return Entry(now=now) if label.dropped else entry_from(raw, version, now)


# --- parties that leave their expiry to the service's clock -----------------------------------


def parties_of(record: Record) -> tuple[Holder | Waiter, ...]:
    """Returns the holders and waiters in a record."""
    return (*record.holders, *record.queue)


def unclocked(record: Record) -> set[Mark]:
    """Returns the parties that were written without a reading of the clock."""
    return {(party.token, party.beat) for party in parties_of(record) if not party.expires_at}


def with_expiries(record: Record, expiries: dict[Mark, Micros]) -> Record:
    """Returns the record with the expiries that are known by now."""
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
    """Returns when the parties without an expiry run out, if they were written at this time."""
    return {
        (party.token, party.beat): written.latest + party.ttl
        for party in parties_of(record)
        if not party.expires_at
    }
