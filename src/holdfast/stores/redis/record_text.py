"""How a lock looks in Redis: the names of its keys, and the text of its record.

    holdfast:{KEY}          the record, a string: JSON in a fixed layout, see scripts/record.lua
    holdfast:{KEY}:wake     the channel on which a free place is told to anyone
    holdfast:{KEY}:wake:ID  and to the queued waiters of one client; their places name it
    holdfast:{KEY}:past     how its last grants ended that were not released, a list
    holdfast:index          a sorted set of all keys (not in a cluster)
    holdfast:due            when to look whether a record has expired (not in a cluster)

The braces are Redis Cluster's hash tag: whatever belongs to one lock is in one slot. In a
key, `%`, `{` and `}` are written as `%25`, `%7B` and `%7D`, so that the tag is the whole key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha1
from os import urandom

import msgspec

from holdfast.core.contract import Entry, Interval, Version
from holdfast.core.records import (
    TOMBSTONE,
    UNREADABLE,
    Happening,
    Holder,
    Micros,
    Note,
    Record,
    Undecodable,
    Waiter,
    decode,
)
from holdfast.core.records import last_used as _last_used
from holdfast.stores.base import faulty_entry

WAKE = b":wake"
# Lua counts in doubles; from here on they are not exact.
_MOST = 2**53 - 1

_json = msgspec.json.Encoder()
# Patterns that only a load needs. They are compiled when it comes, and `re` remembers them.
_REV = rb'\{"v":\d+,"rev":([1-9]\d{0,15}),'
_LAYOUT = (
    rb'\{"v":1,"rev":\d+,"fence":\d+,"updated_at":\d+,"freed":"[^"]*","soonest":\d+,'
    rb'"holders":\[\n(?:\{"token":"[^"]*","fence":\d+,"mode":"[a-z]+","ttl":\d+,'
    rb'"acquired_at":\d+,"expires_at":\d+,"beat":"[^"]*","limit":\w+,"offered":[a-z]+,'
    rb'"owner":[^\n]*\},?\n)*\],'
    rb'"queue":\[\n(?:\{"token":"[^"]*","mode":"[a-z]+","ttl":\d+,"since":\d+,"expires_at":\d+,'
    rb'"beat":"[^"]*","limit":\w+,"owner":[^\n]*\},?\n)*\]\}'
)
_PLAIN = re.compile(r"[A-Za-z0-9_.:@/+-]*")


class Names:
    """The names of a store's keys."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace.encode()
        self.head = self._namespace + b":"
        self.index = self._namespace + b":index"
        self.due = self._namespace + b":due"
        # Names the channels of this client alone. 14 digits say that it knows its waiters by their
        # `mark`; at 0.1.0 these were 12, and the channels told whole tokens.
        self.client_channel = urandom(7).hex().encode()

    def record(self, key: str) -> bytes:
        """Where the record of a lock is."""
        return b"%b:{%b}" % (self._namespace, coded(key))

    def channels(self, key: str) -> tuple[bytes, bytes]:
        """Where a free place is told: to the places of this client, and to anyone."""
        anyone = self.record(key) + WAKE
        return b"%b:%b" % (anyone, self.client_channel), anyone

    def key(self, name: bytes) -> str:
        """The lock whose record or channel this is."""
        code = name[len(self.head) + 1 : name.rindex(b"}")]
        return re.sub(rb"%([0-9A-F]{2})", lambda hit: bytes([int(hit[1], 16)]), code).decode()

    def keys(self, names: Iterable[bytes]) -> set[str]:
        """The locks whose records these are. Somebody else's name may be no text."""
        found = set()
        for name in names:
            with suppress(UnicodeDecodeError):
                found.add(self.key(name))
        return found

    def pattern(self, prefix: str) -> bytes:
        """What SCAN is to match for the records whose keys start like this."""
        glob = re.sub(rb"[\\*?\[\]^]", lambda hit: b"\\" + hit[0], self.head + b"{" + coded(prefix))
        return glob + b"*}"


def coded(key: str) -> bytes:
    """A key as it stands between the braces."""
    if "{" in key or "}" in key or "%" in key:
        key = key.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return key.encode()


# --- the record's text ----------------------------------------------------------------------


def token_text(token: str) -> bytes:
    """A token or beat as it stands between quotes: without quotes, spaces and backslashes."""
    text = token.encode()
    if text.isalnum() or _PLAIN.fullmatch(token):
        return text
    units = token.encode("utf-16-be")
    return "".join(
        char if ord(char) < 128 and _PLAIN.fullmatch(char) else f"\\u{ord(char):04x}"
        for char in (chr(int.from_bytes(units[i : i + 2])) for i in range(0, len(units), 2))
    ).encode()


def mark(token: str) -> bytes:
    """How the scripts name a waiter on its client's channel, where anybody may listen."""
    return sha1(token_text(token), usedforsecurity=False).hexdigest()[:16].encode()


def json_text(value: object) -> bytes:
    """Any value as JSON."""
    return _json.encode(value)


@lru_cache(maxsize=256)
def owner_text(owner: str) -> bytes:
    """The owner, before what else is in a line."""
    return b'"owner":' + _json.encode(owner)


# A holder's line is made of these, with the fence, the start and the end in between. A claim
# brings them along, so that a script has little to put together.


def start_text(token: str) -> bytes:
    """Before the fence."""
    return b'{"token":"%b","fence":' % token_text(token)


def terms_text(mode: str, ttl: Micros) -> bytes:
    """Between the fence and the start."""
    return b',"mode":"%b","ttl":%d,"acquired_at":' % (mode.encode(), ttl)


def end_text(
    beat: str, limit: int | None, owner: str, note: Note, *, offered: bool = False
) -> bytes:
    """After the end."""
    rest = b"{}}" if not note else _json.encode(note) + b"}"
    return b',"beat":"%b",%b%b' % (token_text(beat), _before_note(limit, offered, owner), rest)


def rest_text(owner: str, note: Note) -> bytes:
    """What the scripts carry on as it is: the owner and all behind it."""
    return owner_text(owner) + b',"note":' + _json.encode(note)


@lru_cache(maxsize=256)
def _before_note(limit: int | None, offered: bool, owner: str) -> bytes:
    flag = b"true" if offered else b"false"
    return b'"limit":%b,"offered":%b,%b,"note":' % (_limit(limit), flag, owner_text(owner))


def _limit(limit: int | None) -> bytes:
    return b"null" if limit is None else b"%d" % limit


def _holder(holder: Holder) -> bytes:
    return b'%b%d%b%d,"expires_at":%d%b' % (
        start_text(holder.token),
        holder.fence,
        terms_text(holder.mode, holder.ttl),
        holder.acquired_at,
        holder.expires_at,
        end_text(holder.beat, holder.limit, holder.owner, holder.note, offered=holder.offered),
    )


def _waiter(waiter: Waiter) -> bytes:
    return (
        b'{"token":"%b","mode":"%b","ttl":%d,"since":%d,"expires_at":%d,"beat":"%b","limit":%b,%b%b}'
    ) % (
        token_text(waiter.token), waiter.mode.encode(), waiter.ttl, waiter.since, waiter.expires_at,
        token_text(waiter.beat), _limit(waiter.limit), owner_text(waiter.owner),
        b"" if waiter.lease is None else b',"lease":%d' % waiter.lease,
    )  # fmt: skip


def text_after_rev(record: Record) -> bytes:
    """A record from `"fence"` on; the script that writes it puts the rev before."""
    head = b',"fence":%d,"updated_at":%d,"freed":"%b","soonest":%d,"holders":[\n' % (
        record.fence, record.updated_at, token_text(record.freed), _soonest(record),
    )  # fmt: skip
    holders = b"".join(_lines([_holder(holder) for holder in record.holders]))
    queue = b"".join(_lines([_waiter(waiter) for waiter in record.queue]))
    return head + holders + b'],"queue":[\n' + queue + b"]}"


def _soonest(record: Record) -> Micros:
    """When the first of the queue runs out; before that nobody looks for the dead in it."""
    ends = [waiter.expires_at for waiter in record.queue if waiter.expires_at]
    return min(ends, default=_MOST if record.queue else 0)


def _lines(parties: list[bytes]) -> list[bytes]:
    return [b",\n".join(parties), b"\n"] if parties else []


def read(raw: bytes | None, now: Interval) -> Entry:
    """What a load found. A fault is whatever the scripts would not understand either."""
    if raw is None:
        return Entry(now=now)
    version = version_of(raw)
    try:
        record = decode(raw)
    except Undecodable as why:
        return faulty_entry(why, version, now)
    if re.fullmatch(_LAYOUT, raw) is None or record.fence >= _MOST or not isinstance(version, int):
        fault = "its text is not in the layout that Holdfast writes to Redis"
        return Entry(version=version, now=now, fault=fault)
    return Entry(record, version, now)


_past_decoder = msgspec.json.Decoder(Happening)


def read_past(texts: list[bytes]) -> tuple[Happening, ...]:
    """What is remembered of a key. What cannot be read is left out."""
    found = []
    for text in texts:
        with suppress(*UNREADABLE):
            found.append(_past_decoder.decode(text))
    return tuple(found)


def version_of(raw: bytes) -> Version:
    """The rev of a record, or a digest of whatever else is there."""
    found = re.match(_REV, raw)
    if found and int(found[1]) < _MOST:
        return int(found[1])
    return sha1(raw, usedforsecurity=False).hexdigest()


def stays_for(record: Record, at: Micros, tombstone: Micros = TOMBSTONE) -> int:
    """For how many milliseconds a record written at this time stays."""
    return (max(0, _last_used(record) - at) + tombstone) // 1000 + 1
