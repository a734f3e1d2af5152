"""What a store is: the data that passes between the steps and a store, and its facts.

The classes that stores implement are in `holdfast.stores.base`; this is only the data,
so that the core knows no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.core.commands import Decision, Verdict
from holdfast.core.records import EMPTY, Micros, Record

MAX_KEY_BYTES = 512

# Opaque to everyone but the store that gave it. None: there is no record.
Version: TypeAlias = Any


class Interval(Struct, frozen=True, gc=False):
    """A reading of the store's clock: a time that is not before `earliest` nor after `latest`."""

    earliest: Micros
    latest: Micros


def exactly(at: Micros) -> Interval:
    """Returns the reading of a clock that is exact."""
    return Interval(at, at)


class Entry(Struct, frozen=True, gc=False):
    """What a store has under a key, and its clock when it looked (None: it has no clock).

    `fault` is set instead of the record when what is there cannot be read; the version
    is valid all the same. `newer` says that a later release wrote it. `reached` is a time
    that the clock has surely shown already, for stores whose replies tell less than the time.
    """

    record: Record = EMPTY
    version: Version = None
    now: Interval | None = None
    fault: str | None = None
    reached: Micros | None = None
    newer: bool = False


class Swapped(Struct, frozen=True, gc=False):
    """The swap was done; the record has this version now (None: it was dropped)."""

    version: Version
    now: Interval | None = None


class Conflict(Struct, frozen=True, gc=False):
    """The swap was not done: this is there instead."""

    entry: Entry


class Applied(Struct, frozen=True, gc=False):
    """A scripted store's answer to a whole command."""

    verdict: Verdict
    version: Version = None
    now: Interval | None = None


# What an amend makes of the entry that is there: a pure function, which may be called again.
Change: TypeAlias = Callable[[Entry], Decision]


class Amended(Struct, frozen=True, gc=False):
    """The answer of a store that amends: what was decided, and the entry that is there now, with
    the clock as the function was shown it."""

    decision: Decision
    entry: Entry


class Inherited(Struct, frozen=True, gc=False):
    """A wake-up that spares its waiter a look: the party that freed the lock granted it to the
    place in the queue that was written with this beat.

    The wake-up may be old, and the grant over since, as with a reply that took long. It must come
    from the store itself or from a party that has read the record (see
    `holdfast.stores.waiting.notices`).
    """

    beat: str
    fence: int
    last: int  # the last number of its fences: rule 3 of `rules`
    at: Micros
    expires_at: Micros
    contended: bool  # somebody waits behind it


class Page(Struct, frozen=True):
    """A part of a listing; `cursor` asks for the next, None ends."""

    entries: tuple[tuple[str, Entry], ...]
    cursor: str | None = None


# What a wait may have found out: the record that was there, or that the lock was inherited.
Found: TypeAlias = Entry | Inherited | None

ClockSource = Literal["store", "host", "process", "observed"]


class Facts(Struct, frozen=True, kw_only=True):
    """What a store is and is not, as data that the docs and the command line print."""

    name: str
    # False: best effort; two parties may both believe to hold, only the fence tells.
    linearizable: bool
    # Whose clock decides expiry. observed: none; a silent holder is watched for its ttl.
    clock: ClockSource
    clock_doubt: Micros = 0  # how far its reading may be off
    # False: a reply may come without a reading where nobody's expiry depends on it.
    clock_always: bool = True
    reach: Literal["process", "host", "network"]
    wakeup: Literal["push", "poll"]
    durable: bool  # survives a restart of the store
    native_async: bool = False
    scripted: bool = False  # runs a whole command in one trip
    amends: bool = False  # holds a record still while a function looks at it and changes it
    batch: int = 1  # how many swaps or commands one trip can carry
    max_key_bytes: int = MAX_KEY_BYTES
    max_holders: int | None = None
    history: bool = True  # a record remembers how grants ended that were not released
    caveats: tuple[str, ...] = ()

    @property
    def cheap_places(self) -> bool:
        """Whether a place in the queue is written without making anybody else's write fail."""
        return self.scripted or self.amends
