"""What a store keeps: one small record per key, as JSON that a person can read.

All times are whole microseconds. `*_at` counts from 1970 on the store's clock, never on
a client's. Every write of a holder or a waiter carries a new `beat`, a nonce that tells
this write from all others: by it a client recognises which of its own attempts landed,
and an observer without a clock sees that somebody is still alive.

An `expires_at` of 0 means: written without a reading of the store's clock. Such a party
is dead when it was seen unchanged for its whole ttl, and not before.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

FORMAT = 1

Micros: TypeAlias = int
SECOND: Micros = 1_000_000
# Later than any clock shows.
NEVER: Micros = 1 << 62

LONGEST_TTL: Micros = 30 * 24 * 3600 * SECOND
# How long the record of a free lock stays, so that its fence goes on growing.
TOMBSTONE: Micros = 24 * 3600 * SECOND

Mode: TypeAlias = Literal["exclusive", "shared", "counted"]
Note: TypeAlias = dict[str, Any]
# Larger than anything that is written, and small enough to be added to where numbers have 64 bits.
LARGEST = 2**62
Natural = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
# Where a lock is counted on from what others wrote, less: Lua's numbers are exact below 2^53, and
# as microseconds that is the year 2255. A grant that would need a larger fence is refused.
LARGEST_FENCE = 2**53 - 2
# At most so many numbers belong to one grant: a millisecond of the clock. See rule 3 of `rules`.
RANGE = 1000
Fence = Annotated[int, Meta(ge=0, le=LARGEST_FENCE)]
Duration = Annotated[int, Meta(ge=1, le=2**53)]


_UNSHOWN = frozenset({"token", "ticket", "beat", "next_beat", "sent", "freed", "heir", "wake"})


def _rich_repr(self: Struct) -> list[tuple[str, Any]]:
    shown = [name for name in self.__struct_fields__ if name not in _UNSHOWN]
    return [(name, getattr(self, name)) for name in shown]


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
    return f"{type(self).__name__}({fields})"


class Discreet(Struct, frozen=True, gc=False):
    """Data with a token in it that no `repr` shows, not in a pretty-printed traceback either."""

    __rich_repr__ = _rich_repr
    __repr__ = _repr


class DiscreetState(Struct, eq=False):
    """The same for mutable state, which is only equal to itself."""

    __rich_repr__ = _rich_repr
    __repr__ = _repr


class Holder(Discreet, frozen=True, omit_defaults=True, gc=False):
    """One grant. Each party that knows the token may renew, free or hand on this grant."""

    token: str
    fence: Fence
    owner: str
    mode: Mode
    ttl: Duration
    acquired_at: Natural
    expires_at: Natural
    beat: str
    limit: Positive | None = None
    note: Note = {}
    offered: bool = False  # given up by one party, waiting for the next one to take it

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("owner", self.owner), ("mode", self.mode), ("fence", self.fence)]


class Waiter(Discreet, frozen=True, omit_defaults=True, gc=False):
    """One place in the queue. It drops out by its own expiry, like a holder."""

    token: str
    owner: str
    mode: Mode
    ttl: Duration
    since: Natural
    expires_at: Natural
    beat: str
    limit: Positive | None = None
    lease: Duration | None = None  # the ttl of its grant; None: it has to claim the lock itself

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("owner", self.owner), ("mode", self.mode)]


Ended = Literal["expired", "evicted", "handed over"]
# The record remembers so many of the latest.
REMEMBERED = 5


class Happening(Struct, frozen=True, array_like=True, gc=False):
    """How a grant ended that its holder did not release, for people.

    A plain release leaves no trace: it is the usual end, and must stay cheap."""

    what: Ended
    at: Natural  # when it was noticed
    owner: str
    fence: Fence
    since: Natural  # when the grant began
    by: str = ""  # the operator who evicted it, or who took it over
    why: str = ""  # the operator's reason


def ended(holder: Holder, what: Ended, at: Micros, by: str = "", why: str = "") -> Happening:
    """Returns what to remember of a grant that has ended. Never earlier than the grant began: the
    party that notices the end may know the store's time better than the holder did, and so have an
    earlier one."""
    at = max(at, holder.acquired_at)
    return Happening(what, at, holder.owner, holder.fence, holder.acquired_at, by, why)


# What is remembered of a key; unset, and not in the record's text, if that is nothing.
History: TypeAlias = tuple[Happening, ...] | msgspec.UnsetType


class Record(Discreet, frozen=True, gc=False):
    """The whole truth about one key. The fence only ever grows."""

    fence: Fence = 0
    holders: tuple[Holder, ...] = ()
    queue: tuple[Waiter, ...] = ()
    updated_at: Natural = 0
    freed: str = ""  # the token that was freed last, so that freeing twice can be told
    v: int = FORMAT
    history: History = msgspec.UNSET

    def remembering(self, *news: Happening) -> History:
        """Returns the history of the key with these added to it."""
        if not news:
            return self.history
        return (*(self.history or ()), *news)[-REMEMBERED:]


EMPTY = Record()
P = TypeVar("P", Holder, Waiter)


def anonymous(party: P) -> P:
    """Returns a party without its token and beat, to be shown to others."""
    return replace(party, token="", beat="")


class Undecodable(ValueError):
    """The stored text is not a record of ours; says why, without showing it."""


class NewerFormat(Undecodable):
    """A later release wrote this, and may hold a lock by it."""


class _Stored(Struct, gc=False):
    """A record as it is in a store. Every field was written: where one is missing, the text is
    damaged, and the holders that it does not name may be alive."""

    fence: Fence
    holders: tuple[Holder, ...]
    queue: tuple[Waiter, ...]
    updated_at: Natural
    v: int
    freed: str = ""
    history: History = msgspec.UNSET


class _Version(Struct):
    v: int


# What msgspec raises about text that others wrote; the last one, if it is nested too deeply.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# The record as JSON. Not wrapped in a function: every swap calls it.
encode = msgspec.json.Encoder().encode
# Decoders are made when their module is imported, never at first use: while one thread makes a
# decoder, msgspec already lets others use what it knows of the type, half of which is missing, and
# the process ends with a segmentation fault (seen with msgspec 0.22).
_decoder = msgspec.json.Decoder(_Stored)
_version_decoder = msgspec.json.Decoder(_Version)


def decode(raw: bytes | str) -> Record:
    """Returns the record in a JSON text, or raises `Undecodable` with the reason."""
    try:
        stored = _decoder.decode(raw)
    except UNREADABLE as exc:
        raise undecodable(raw, f"it is not a lock record ({exc})") from None
    if stored.v != FORMAT:
        raise undecodable(raw, f"its format is {stored.v}")
    return Record(
        stored.fence,
        stored.holders,
        stored.queue,
        stored.updated_at,
        stored.freed,
        FORMAT,
        stored.history,
    )


def undecodable(raw: bytes | str, why: str) -> Undecodable:
    """Returns what to raise about a text: `NewerFormat` if a later release wrote it, which may
    have changed every field but `v`, or else `Undecodable` with this reason."""
    try:
        version = _version_decoder.decode(raw).v
    except UNREADABLE:
        return Undecodable(why)
    if version > FORMAT:
        return NewerFormat(f"its format {version} is newer than {FORMAT}: upgrade holdfast")
    return Undecodable(why)


def last_used(record: Record) -> Micros:
    """Returns the store's time from which on nobody can hold or wait for this, and a fence that
    starts again at the clock is larger than the one in the record."""
    parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
    ends = (max(party.expires_at, record.updated_at + party.ttl) for party in parties)
    return max((record.updated_at, record.fence + RANGE, *ends))


def droppable_at(record: Record) -> Micros:
    """Returns when a store may drop this record by itself."""
    return last_used(record) + TOMBSTONE
