"""Commands in the words of the scripts, and the scripts' answers in ours. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
from holdfast.core.records import Holder, Micros, Note, Record, Waiter
from holdfast.stores.base import Outcome
from holdfast.stores.redis import record_text
from holdfast.stores.redis.record_text import Names, word
from holdfast.stores.redis.resp import ASKING, bulk, packed
from holdfast.stores.redis.scripts import (
    ALL,
    CLAIM,
    EVICT,
    FREE,
    INDEX_ADD,
    OFFER,
    RENEW,
    SCAN,
    SWAP,
    TAKE,
    Script,
)

NO_NOTE: Note = {}
# The index may have names in it that others wrote, and that are no text.
_ANY_BYTES = "surrogateescape"
_SURROGATE = re.compile("[\ud800-\udfff]")
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

    def asking(self, request: bytes) -> bytes:
        """As it is sent to a server to which the lock's slot is on its way."""
        return ASKING + request


class _Place:
    """The words with which all calls on one lock start: its keys, and how long it stays."""

    __slots__ = ("alone", "claim", "free", "indexed", "name")

    def __init__(
        self, name: bytes, keys: bytes, index: bytes, stay: bytes, claim: bytes, free: bytes
    ) -> None:
        self.name = name
        words = bulk(name)
        self.alone = _ONE_KEY + words + stay
        self.indexed = keys + words + index + stay
        self.claim = claim + self.indexed
        self.free = free + self.alone


class Encoder:
    """Makes calls for one store."""

    def __init__(
        self, names: Names, tombstone: Micros, indexed: bool, wait: bytes, fast_paths: bool = True
    ) -> None:
        self._scripts = {one: one if fast_paths else one.without_fast_paths for one in ALL}
        self._claim_script, self._free_script = self._scripts[CLAIM], self._scripts[FREE]
        self._tombstone = tombstone
        self._stay_ms = tombstone // 1000
        self._head = names.head
        self._client_channel = names.client_channel
        self._index = (names.index, names.due) if indexed else ()
        self._wait = wait
        self._again = AGAIN + wait if wait else b""
        keys, index = bulk(b"%d" % (1 + len(self._index))), packed(*self._index)
        stay = bulk(b"%d" % self._stay_ms)
        words = 11 + len(self._index) + bool(wait)
        claim = b"*%d\r\n%b" % (words, self._claim_script.by_hash)
        free = b"*6\r\n" + self._free_script.by_hash
        self._place = lru_cache(REMEMBERED)(
            lambda key: _Place(names.record(key), keys, index, stay, claim, free)
        )
        self._usual = lru_cache(REMEMBERED)(self._terms)

    def command(self, key: str, command: Command, beat: str) -> Call:
        """A whole command."""
        kind, place = type(command), self._place(key)
        if kind is Claim:
            return self._claim(place, command, beat)  # type: ignore[arg-type]
        if kind is Free:
            token = word(command.token)  # type: ignore[union-attr]
            request = b"%b$%d\r\n%b\r\n" % (place.free, len(token), token)
            return Call(self._free_script, place.name, request)
        script, count, words = _COMMANDS[kind]
        return self._call(script, place.name, count + 3, place.alone + words(command, beat))

    def _claim(self, place: _Place, claim: Claim, beat: str) -> Call:
        token, nonce = word(claim.token), word(beat)
        said = (
            claim.mode, claim.ttl, claim.limit, claim.owner,
            claim.patience if claim.queue else None, len(token), len(nonce),
        )  # fmt: skip
        start, middle, end = self._terms(*said, claim.note) if claim.note else self._usual(*said)
        request = b"%b%b%b%b%b%b" % (place.claim, start, token, middle, nonce, end)
        return Call(self._claim_script, place.name, request, self._wait, 2 if self._wait else 1)

    def _terms(
        self, mode: str, ttl: Micros, limit: int | None, owner: str, patience: Micros | None,
        token_size: int, beat_size: int, note: Note = NO_NOTE,
    ) -> tuple[bytes, bytes, bytes]:  # fmt: skip
        """What a claim says before its token, between that and its beat, and after it."""
        before, after = record_text.start_text("@").split(b"@")
        lead, _, rest = record_text.end_text("@", limit, owner, note).partition(b"@")
        words = packed(
            b"%d" % ttl,
            b"%d" % (self._stay_ms - -ttl // 1000),
            record_text.terms_text(mode, ttl),
            b"" if patience is None else b"%d %b" % (patience, self._client_channel),
        )
        start = b"$%d\r\n%b" % (len(before) + token_size + len(after), before)
        end = b"$%d\r\n%b" % (len(lead) + beat_size + len(rest), lead)
        return start, after + b"\r\n" + words + end, rest + b"\r\n" + self._again

    def _call(self, script: Script, name: bytes, count: int, words: bytes) -> Call:
        """A call with so many words: the number of keys, the keys and the arguments."""
        is_waited_for = self._wait and script in _WAITED_FOR
        script = self._scripts[script]
        if is_waited_for:
            request = b"*%d\r\n%b%b%b" % (count + 3, script.by_hash, words, self._again)
            return Call(script, name, request, self._wait, 2)
        return Call(script, name, b"*%d\r\n%b%b" % (count + 2, script.by_hash, words))

    def swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Call:
        """A compare-and-swap."""
        text, stay = b"", 0
        if record is not None:
            text = record_text.text_after_rev(record)
            stay = record_text.stays_for(record, record.updated_at, self._tombstone)
        whom = "*" if wake == ANYONE else " ".join(word(token).decode() for token in wake)
        seen = "" if version is None else str(version)
        return self._indexed(SWAP, key, seen.encode(), text, b"%d" % stay, whom.encode())

    def index_add(self, key: str) -> Call:
        """Enter a record into the index."""
        return self._indexed(INDEX_ADD, key)

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Call:
        """A page of the index."""
        first = b"[" + prefix.encode() if prefix else b"-"
        start = first if cursor is None else b"(" + cursor.encode(errors=_ANY_BYTES)
        stop = b"(" + prefix.encode() + b"\xff" if prefix else b"+"
        call = self._indexed(SCAN, "", start, stop, b"%d" % limit, self._head)
        return replace(call, looks=True)

    def _indexed(self, script: Script, key: str, *words: bytes) -> Call:
        place, count = self._place(key), 3 + len(self._index) + len(words)
        return self._call(script, place.name, count, place.indexed + packed(*words))


_YES, _NO = bulk(b"1"), bulk(b"")

# For each command its script, and so many words, packed.
_Words = Callable[[Any, str], bytes]
_COMMANDS: dict[type, tuple[Script, int, _Words]] = {
    Renew: (
        RENEW,
        3,
        lambda c, beat: bulk(word(c.token)) + bulk(word(beat)) + (_YES if c.known else _NO),
    ),
    Offer: (
        OFFER,
        4,
        lambda c, beat: packed(word(c.token), word(beat), word(c.ticket), b"%d" % c.ttl),
    ),
    Take: (
        TAKE,
        6,
        lambda c, beat: packed(
            word(c.token), word(beat), word(c.ticket), b"%d" % c.ttl,
            record_text.json_text(c.owner),
            b"" if c.note is None else record_text.json_text(c.note),
        ),
    ),
    Evict: (EVICT, 1, lambda c, beat: bulk(b" ".join(b"%d" % f for f in c.fences))),
}  # fmt: skip

# A grant must outlive the master. A freed or evicted lock that comes back runs out by itself.
_WAITED_FOR = {RENEW, OFFER, TAKE}  # and every claim
# So many locks, and so many kinds of claims, have the start of their requests ready.
REMEMBERED = 1024
AGAIN = bulk(b"!")
_ONE_KEY = bulk(b"1")


# --- answers --------------------------------------------------------------------------------


# What a script says that came upon a waiter it could not read, or upon the largest fence.
UNREADABLE = "HOLDFAST this record cannot be used"


class Corrupt(Exception):
    """The script did not understand the record."""


def applied(reply: Any, command: Command, beat: str) -> Applied:
    """The answer to a command: a string of lines, of which only a last one has breaks; or just
    the time at which it was done in the usual way, of a claim perhaps with who waits behind."""
    if type(reply) is int:
        verdict = _AS_USUAL[type(command)](command, beat, reply)
        return Applied(verdict, reply, Interval(reply, reply))
    if type(reply) is list:
        at, wanted = reply
        verdict = _claimed(command, beat, at, _many(_waiters, wanted))  # type: ignore[arg-type]
        return Applied(verdict, at, Interval(at, at))
    lines = reply.split(b"\n", _LINES)
    verdict = _VERDICTS[lines[0]](*lines[3:])
    now, rev = int(lines[1]), lines[2]
    return Applied(verdict, int(rev) if rev else None, Interval(now, now))


def _claimed(claim: Claim, beat: str, at: Micros, wanted: tuple[Waiter, ...] = ()) -> Verdict:
    """A free lock was claimed: the clock is its fence."""
    return Granted(claim.holder(at, at, at + claim.ttl, beat), wanted)


def _renewed(renew: Renew, beat: str, at: Micros) -> Verdict:
    """The only holder, for whom nobody waits, has told us what it knows of its grant."""
    known = renew.known
    assert known is not None
    return Granted(replace(known, expires_at=at + known.ttl, beat=beat))


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
_AS_USUAL: dict[type, Callable[[Any, str, Micros], Verdict]] = {
    Claim: _claimed,
    Renew: _renewed,
    Free: lambda free, beat, at: _FREED,
}
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
        return Conflict(record_text.read(rest or None, now))
    return Swapped(int(rest) if rest else None, now)


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
    return key.isascii() or not _SURROGATE.search(key)


def clock(reply: list[bytes]) -> Interval:
    """The answer to TIME."""
    at = int(reply[0]) * 1_000_000 + int(reply[1])
    return Interval(at, at)
