"""Commands in the words of the scripts, and the scripts' answers in ours. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.commands import (
    ANYONE,
    Blocked,
    Claim,
    Command,
    Evict,
    Evicted,
    Free,
    Freed,
    Granted,
    Mismatch,
    NotHeld,
    Offer,
    Renew,
    Take,
    Verdict,
    Wake,
)
from holdfast.core.contract import Applied, Conflict, Interval, Page, Swapped, Version
from holdfast.core.records import Holder, Micros, Record, Waiter
from holdfast.stores.base import Outcome
from holdfast.stores.redis import layout
from holdfast.stores.redis.layout import Names
from holdfast.stores.redis.scripts import (
    CLAIM,
    ENTER,
    EVICT,
    FREE,
    OFFER,
    RENEW,
    SCAN,
    SWAP,
    TAKE,
    Arg,
    Script,
)

_holder = msgspec.json.Decoder(Holder)
_holders = msgspec.json.Decoder(tuple[Holder, ...])
_waiters = msgspec.json.Decoder(tuple[Waiter, ...])


class Call:
    """One run of a script on one lock."""

    __slots__ = ("args", "keys", "replies", "script", "tail")

    def __init__(
        self, script: Script, keys: tuple[bytes, ...], args: tuple[Arg, ...], tail: bytes = b""
    ) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.tail = tail  # a WAIT, see `wait_replicas`
        self.replies = 2 if tail else 1

    def request(self) -> bytes:
        """As it is sent to a server that knows the script."""
        return self.script.by_hash(self.keys, self.args) + self.tail

    def request_in_full(self) -> bytes:
        """As it is sent to one that does not."""
        return self.script.in_full(self.keys, self.args) + self.tail


class Speaker:
    """Makes calls for one store."""

    def __init__(self, names: Names, tombstone: Micros, indexed: bool, wait: bytes) -> None:
        self.names = names
        self._tombstone = tombstone
        self._stay = str(tombstone // 1000)
        self._index = (names.index, names.due) if indexed else ()
        self._wait = wait

    def command(self, key: str, command: Command, beat: str) -> Call:
        """A whole command."""
        kind = type(command)
        script, words = _COMMANDS[kind]
        tail = self._wait if kind in _WAITED_FOR else b""
        args = (layout.word(beat), self._stay, "1" if tail else "0", *words(command))
        return Call(script, (self.names.record(key), *self._index), args, tail)

    def swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Call:
        """A compare-and-swap."""
        text, stay = b"", 0
        if record is not None:
            text = layout.text_after_rev(record)
            stay = layout.stays_for(record, record.updated_at, self._tombstone)
        args = (
            "", self._stay, "0", "" if version is None else str(version), text, str(stay),
            "*" if wake == ANYONE else " ".join(map(layout.word, wake)),
        )  # fmt: skip
        return Call(SWAP, (self.names.record(key), *self._index), args)

    def enter(self, key: str) -> Call:
        """Enter a record into the index."""
        return Call(ENTER, (self.names.record(key), *self._index), ("", self._stay, "0"))

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Call:
        """A page of the index."""
        first = b"[" + prefix.encode() if prefix else b"-"
        start = first if cursor is None else b"(" + cursor.encode()
        stop = b"(" + prefix.encode() + b"\xff" if prefix else b"+"
        args: tuple[Arg, ...] = ("", "0", "0", start, stop, str(limit), self.names.head)
        return Call(SCAN, (self.names.head, *self._index), args)


_Words = Callable[[Any], tuple[Arg, ...]]
_COMMANDS: dict[type, tuple[Script, _Words]] = {
    Claim: (
        CLAIM,
        lambda c: (
            layout.word(c.token), c.mode, str(c.ttl), layout.limit_text(c.limit),
            layout.rest_text(c.owner, c.note), "1" if c.queue else "0", str(c.patience),
            layout.owner_text(c.owner) if c.queue else b"",
        ),
    ),
    Renew: (RENEW, lambda c: (layout.word(c.token),)),
    Free: (FREE, lambda c: (layout.word(c.token),)),
    Offer: (OFFER, lambda c: (layout.word(c.token), layout.word(c.ticket), str(c.ttl))),
    Take: (
        TAKE,
        lambda c: (
            layout.word(c.ticket), layout.word(c.token), str(c.ttl), layout.json_text(c.owner),
            b"" if c.note is None else layout.json_text(c.note),
        ),
    ),
    Evict: (EVICT, lambda c: ("" if c.fence is None else str(c.fence),)),
}  # fmt: skip

# A grant must outlive the master. A freed or evicted lock that comes back runs out by itself.
_WAITED_FOR = {Claim, Renew, Offer, Take}


# --- answers --------------------------------------------------------------------------------


# What a script says that came upon a waiter it could not read.
UNREADABLE = "HOLDFAST a waiter cannot be read"


class Corrupt(Exception):
    """The script did not understand the record."""


def applied(reply: bytes) -> Applied:
    """The answer to a command: a string of lines, of which only a last one has breaks."""
    lines = reply.split(b"\n", _LINES)
    verdict = _VERDICTS[lines[0]](*lines[3:])
    now, rev = int(lines[1]), lines[2]
    return Applied(verdict, int(rev) if rev else None, Interval(now, now))


def _granted(holder: bytes, wanted: bytes, *more: bytes) -> Verdict:
    wanted = b"\n".join((wanted, *more)) if more else wanted
    return Granted(_holder.decode(holder), _waiters.decode(wanted) if wanted else ())


def _blocked(queued: bytes, more: bytes, holders: bytes, ahead: bytes) -> Verdict:
    waiters = _many(_waiters, ahead)
    return Blocked(_many(_holders, holders), waiters, queued == b"1", int(more))


def _many(decoder: Any, text: bytes) -> Any:
    return decoder.decode(text) if text else ()


def _corrupt() -> Verdict:
    raise Corrupt


_LINES = 6  # of a blocked claim; only `wanted` and `ahead` have line breaks inside
_NOT_HELD, _FREED = NotHeld(), Freed()
_VERDICTS: dict[bytes, Callable[..., Verdict]] = {
    b"granted": _granted,
    b"blocked": _blocked,
    b"mismatch": lambda limit: Mismatch(int(limit)),
    b"not held": lambda: _NOT_HELD,
    b"freed": lambda: _FREED,
    b"evicted": lambda holders: Evicted(_many(_holders, holders)),
    b"corrupt": _corrupt,
}


def swapped(reply: list[Any]) -> Outcome:
    """The answer to a swap."""
    name, at, rest = reply
    now = Interval(int(at), int(at))
    if name == b"conflict":
        return Conflict(layout.read(rest or None, now))
    return Swapped(int(rest) if rest else None, now)


def page(reply: list[Any], limit: int) -> Page:
    """The answer to a scan."""
    at, last, found = int(reply[0]), reply[1], int(reply[2])
    now = Interval(at, at)
    rows = zip(reply[3::2], reply[4::2], strict=True)
    entries = tuple((key.decode(), layout.read(raw, now)) for key, raw in rows)
    return Page(entries, last.decode() if found == limit else None)


def clock(reply: list[bytes]) -> Interval:
    """The answer to TIME."""
    at = int(reply[0]) * 1_000_000 + int(reply[1])
    return Interval(at, at)
