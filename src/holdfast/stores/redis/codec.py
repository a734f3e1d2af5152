"""Encodes commands as requests to the scripts, and decodes the scripts' answers. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.commands import (
    NOBODY,
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
from holdfast.core.contract import Applied, Conflict, Entry, Interval, Page, Swapped, Version
from holdfast.core.records import RANGE, Holder, Micros, Record, Waiter
from holdfast.stores.base import Outcome
from holdfast.stores.redis import record_text
from holdfast.stores.redis.record_text import Names, token_text
from holdfast.stores.redis.resp import bulk
from holdfast.stores.redis.scripts import (
    ALL,
    CLAIM,
    EVICT,
    FREE,
    INDEX_ADD,
    LOAD,
    OFFER,
    RENEW,
    SCAN,
    SWAP,
    TAKE,
    Script,
)

# The index may have names in it that others wrote, and that are no text.
_ANY_BYTES = "surrogateescape"
_holder = msgspec.json.Decoder(Holder)
_holders = msgspec.json.Decoder(tuple[Holder, ...])
_waiters = msgspec.json.Decoder(tuple[Waiter, ...])


class Call(Struct, frozen=True, gc=False):
    """One run of a script on one lock."""

    script: Script
    name: bytes  # of the lock's record
    request: bytes  # as it is sent to a server that knows the script
    tail: bytes = b""  # a WAIT at its end, see `wait_replicas`
    replies: int = 1
    looks: bool = False  # it changes nothing

    def request_in_full(self) -> bytes:
        """As it is sent to a server that does not know the script."""
        return self.request.replace(self.script.by_hash, self.script.in_full, 1)


class Encoder:
    """Makes the calls of one store."""

    def __init__(
        self, names: Names, tombstone: Micros, indexed: bool, wait: bytes, fast_paths: bool = True
    ) -> None:
        self._scripts = {one: one if fast_paths else one.without_fast_paths for one in ALL}
        self._tombstone = tombstone
        self._stay = b"%d" % (tombstone // 1000)
        self._head = names.head
        self._client_channel = names.client_channel
        self._index = (names.index, names.due) if indexed else ()
        self._wait = wait
        self._name_of = names.record
        self._start = lru_cache(REMEMBERED)(self._make_start)
        self._around_name = lru_cache(REMEMBERED)(self._make_around_name)
        self._terms = lru_cache(REMEMBERED)(self._make_terms)

    def command(self, key: str, command: Command, beat: str) -> Call:
        """A whole command."""
        if isinstance(command, Claim):
            return self._claim(key, command, beat)
        script, arguments = _COMMANDS[type(command)]
        return self._call(script, key, arguments(command, beat))

    def _claim(self, key: str, claim: Claim, beat: str) -> Call:
        """The command of every lock. What its terms say is ready; the rest is packed at once."""
        place = b"%d %b" % (claim.patience, self._client_channel) if claim.queue else b""
        if claim.queue and claim.inherits and not self._wait:  # a release is not waited for
            place += b" %d" % claim.ttl
        start = record_text.start_text(claim.token)
        end = record_text.end_text(beat, claim.limit, claim.owner, claim.note)
        packed = b"$%d\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            len(start), start, self._terms(claim.mode, claim.ttl),
            len(place), place, len(end), end,
        )  # fmt: skip
        return self._packed_call(CLAIM, key, 6, packed, self._index)

    def _make_terms(self, mode: str, ttl: Micros) -> bytes:
        """The arguments of a claim that follow from its terms."""
        stay = (self._tombstone // 1000) - -ttl // 1000
        return b"".join(map(bulk, (b"%d" % ttl, b"%d" % stay, record_text.terms_text(mode, ttl))))

    def load(self, key: str) -> Call:
        """The record, and the clock."""
        return self._call(LOAD, key, ())

    def swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Call:
        """A compare-and-swap."""
        text, stay = b"", 0
        if record is not None:
            text = record_text.text_after_rev(record)
            stay = record_text.stays_for(record, record.updated_at, self._tombstone)
        whom = b"" if wake == NOBODY else b"*"
        seen = b"" if version is None else str(version).encode()
        return self._call(SWAP, key, (seen, text, b"%d" % stay, whom), self._index)

    def index_add(self, key: str) -> Call:
        """Enter a record into the index."""
        return self._call(INDEX_ADD, key, (), self._index)

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Call:
        """A page of the index."""
        first = b"[" + prefix.encode() if prefix else b"-"
        start = first if cursor is None else b"(" + cursor.encode(errors=_ANY_BYTES)
        stop = b"(" + prefix.encode() + b"\xff" if prefix else b"+"
        return self._call(SCAN, "", (start, stop, b"%d" % limit, self._head), self._index)

    def _call(
        self, script: Script, key: str, arguments: tuple[bytes, ...], index: tuple[bytes, ...] = ()
    ) -> Call:
        # hiredis packs too, but takes three times as long.
        packed = b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in arguments])
        return self._packed_call(script, key, len(arguments), packed, index)

    def _packed_call(
        self, script: Script, key: str, count: int, packed: bytes, index: tuple[bytes, ...]
    ) -> Call:
        """A call with so many arguments."""
        if self._wait and script in _WAITED_FOR:
            chosen, name, start = self._start(script, key, count + 1, index)
            request = start + packed + WRITE_SOMETHING + self._wait
            return Call(chosen, name, request, self._wait, 2)
        chosen, name, start = self._start(script, key, count, index)
        return Call(chosen, name, start + packed, looks=script in _LOOKS)

    def _make_start(
        self, script: Script, key: str, count: int, index: tuple[bytes, ...]
    ) -> tuple[Script, bytes, bytes]:
        """The script to run, the name of the record, and the request as far as both say it."""
        name = self._name_of(key)
        chosen, before, after = self._around_name(script, count, index)
        return chosen, name, b"%b$%d\r\n%b\r\n%b" % (before, len(name), name, after)

    def _make_around_name(
        self, script: Script, count: int, index: tuple[bytes, ...]
    ) -> tuple[Script, bytes, bytes]:
        """The script to run, and what its request starts with before and after the name."""
        chosen = self._scripts[script]
        words = b"*%d\r\n%b" % (5 + len(index) + count, chosen.by_hash)
        before = words + bulk(b"%d" % (1 + len(index)))
        return chosen, before, b"".join(map(bulk, (*index, self._stay)))


def _known(renew: Renew) -> bytes:
    """What the asker knows of its grant: whether it can do without the store's answer; or to whom
    it was passed on."""
    lease = renew.passed_on
    if lease is None:
        return b"1" if renew.known else b""
    return b"%d %b" % (lease.fence, record_text.rest_text(lease.owner, lease.note))


def _texts(*tokens: str) -> tuple[bytes, ...]:
    return tuple(map(token_text, tokens))


# For each command its script and its arguments. (Those of a claim need the store's names.)
_COMMANDS: dict[type, tuple[Script, Callable[[Any, str], tuple[bytes, ...]]]] = {
    Renew: (RENEW, lambda c, beat: (*_texts(c.token, beat), _known(c))),
    Free: (FREE, lambda c, beat: _texts(c.token)),
    Offer: (OFFER, lambda c, beat: (*_texts(c.token, beat, c.ticket), b"%d" % c.ttl)),
    Take: (
        TAKE,
        lambda c, beat: (
            *_texts(c.token, beat, c.ticket),
            b"%d" % c.ttl,
            record_text.json_text(c.owner),
            b"" if c.note is None else record_text.json_text(c.note),
        ),
    ),
    Evict: (
        EVICT,
        lambda c, beat: (
            b" ".join(b"%d" % fence for fence in c.fences),
            b" ".join(record_text.json_text(token) for token in c.waiters),
            record_text.json_text(c.operator),
            record_text.json_text(c.reason),
        ),
    ),
}

# A grant must outlive the master. A freed or evicted lock that comes back runs out by itself.
_WAITED_FOR = {CLAIM, RENEW, OFFER, TAKE}
# These change nothing.
_LOOKS = {LOAD, SCAN}
# The last argument of a command that WAIT is to wait for.
WRITE_SOMETHING = bulk(b"!")
# So many requests have their start ready.
REMEMBERED = 1024


# --- answers --------------------------------------------------------------------------------


# What a script says that came upon a waiter it could not read, or upon the largest fence.
UNREADABLE = "HOLDFAST this record cannot be used"


class Corrupt(Exception):
    """The script did not understand the record."""


def applied(reply: Any, command: Command, beat: str) -> Applied:
    """Decode the answer to a command. It has one of three forms.

    Text: the verdict, the clock, the rev and what belongs to the verdict, a line each. A number: a
    fast path was taken, and this is the clock. A list: a claim was granted on a fast path; it has
    the clock, as text who waits behind it, and the grant's fence.
    """
    if type(reply) is int:
        verdict = _AS_USUAL[type(command)](command, beat, reply)
        return Applied(verdict, reply, Interval(reply, reply))
    if type(reply) is list:
        at, wanted, fence = reply
        waiters = _many(_waiters, wanted)
        granted = Granted(command.holder(fence, at, at + command.ttl, beat), waiters, at)  # type: ignore[union-attr]
        return Applied(granted, at, Interval(at, at))
    lines = reply.split(b"\n", _LINES)
    verdict = _VERDICTS[lines[0]](*lines[3:])
    now, rev = int(lines[1]), lines[2]
    if type(command) is Claim and type(verdict) is Granted and not verdict.last:
        mine = verdict.holder
        if mine.acquired_at == now:  # and not by an earlier try whose answer was lost
            verdict = Granted(mine, verdict.wanted, max(mine.fence, now))
    return Applied(verdict, int(rev) if rev else None, Interval(now, now))


def _claimed(claim: Claim, beat: str, at: Micros) -> Verdict:
    """A free lock was claimed: the clock is the last number of its range."""
    first = at - RANGE if claim.mode == "exclusive" else at
    return Granted(claim.holder(first, at, at + claim.ttl, beat), (), at)


def _renewed(renew: Renew, beat: str, at: Micros) -> Verdict:
    """The only holder, for whom nobody waits, has told us what it knows of its grant."""
    known = renew.known
    assert known is not None
    return Granted(replace(known, expires_at=at + known.ttl, beat=beat))


def _granted(holder: bytes, wanted: bytes, *more: bytes) -> Granted:
    wanted = b"\n".join((wanted, *more)) if more else wanted
    return Granted(_holder.decode(holder), _waiters.decode(wanted) if wanted else ())


def _inherited(holder: bytes, last: bytes, wanted: bytes, *more: bytes) -> Verdict:
    granted = _granted(holder, wanted, *more)
    return Granted(granted.holder, granted.wanted, int(last))


def _blocked(queued: bytes, more: bytes, holders: bytes, ahead: bytes) -> Verdict:
    waiters = _many(_waiters, ahead)
    return Blocked(_many(_holders, holders), waiters, queued == b"1", int(more))


def _many(decoder: Any, text: bytes) -> Any:
    return decoder.decode(text) if text else ()


def _corrupt() -> Verdict:
    raise Corrupt


_LINES = 6  # of a blocked claim; only `wanted` and `ahead` have line breaks inside
_NOT_HELD, _FREED = NotHeld(), Freed()
_AS_USUAL: dict[type, Callable[[Any, str, Micros], Verdict]] = {
    Claim: _claimed,
    Renew: _renewed,
    Free: lambda free, beat, at: _FREED,
}
_VERDICTS: dict[bytes, Callable[..., Verdict]] = {
    b"granted": _granted,
    b"inherited": _inherited,
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
        return Conflict(record_text.read(rest, now))
    return Swapped(int(rest) if rest else None, now)


def loaded(reply: list[Any]) -> Entry:
    """The answer to a load."""
    at, raw, past = reply
    entry = record_text.read(raw, Interval(int(at), int(at)))
    history = record_text.read_past(past)
    if not history or entry.fault is not None:
        return entry
    return replace(entry, record=replace(entry.record, history=history))


def page(reply: list[Any], limit: int) -> Page:
    """The answer to a scan."""
    at, last, found = int(reply[0]), reply[1], int(reply[2])
    now = Interval(at, at)
    rows = zip(reply[3::2], reply[4::2], strict=True)
    named = ((key.decode(errors=_ANY_BYTES), raw) for key, raw in rows)
    entries = tuple((key, record_text.read(raw, now)) for key, raw in named if _is_text(key))
    return Page(entries, last.decode(errors=_ANY_BYTES) if found == limit else None)


def _is_text(key: str) -> bool:
    """Whether it is a key of ours, and not somebody else's bytes."""
    return key.isascii() or not re.search("[\ud800-\udfff]", key)
