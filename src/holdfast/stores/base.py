"""The interface of a store.

`Store` is the blocking face, and the only one that must be written: `to_async` gives an
asyncio face over threads, unless the engine has a native one. A store only reads and writes
records; what they mean is in `holdfast.core`. Its methods raise

    Unavailable, Misconfigured   when the request was surely not carried out
    OutcomeUnknown               when it left and no answer came back

and keep the driver's own exception as `__cause__`. All methods may be called from several
threads at once. The time in an `Entry` is the store's, read at any moment between the request
and the reply.

A request says `by` when its answer must be there, on this process's own clock
(`stores.deadlines`). A store that has no answer by then stops waiting and raises:
`OutcomeUnknown` if a write has left, `Unavailable` if nothing was sent or it only reads. The
caller was promised to be back by then. An engine's own time-outs may be shorter, never longer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import (
    Amended,
    Applied,
    Change,
    Conflict,
    Entry,
    Facts,
    Found,
    Interval,
    Page,
    Swapped,
    Version,
)
from holdfast.core.effects import Apply, Swap
from holdfast.core.records import NEVER, Micros, NewerFormat, Record, Undecodable, decode
from holdfast.errors import ClientForked, Unsupported

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

Outcome = Swapped | Conflict


class Store(ABC):
    """Load, swap, scan and wait over one engine."""

    facts: Facts

    @classmethod
    @abstractmethod
    def from_url(cls, url: StoreURL, **options: Any) -> Store:
        """Open the store that a URL names."""

    @abstractmethod
    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """Returns the record under a key, with its version and the store's time."""

    @abstractmethod
    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Write if the version is still this one (None: if there is no record); a record
        of None deletes. `wake` names the queued tokens that this write may let in. Returns
        `Swapped`, or `Conflict` with what is there instead."""

    @abstractmethod
    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """Returns a page of the records whose keys start with `prefix`, each once, and the cursor
        of the next page. In the order of the keys' bytes if the engine can, else in a fixed one."""

    @abstractmethod
    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
        """Block until the key may have changed for this token, or for a time. Returns what a load
        would have shown at some moment since the call began, or that the lock was granted to this
        token's place in the queue, if one of them is known anyway; or None."""

    def awaits(self, token: str) -> bool:
        """Returns whether a call surely waits with this token at this moment, if that can be told
        without a request: then it may be named as the heir of a lock."""
        return False

    def swap_many(self, swaps: Sequence[Swap], by: Micros = NEVER) -> list[Outcome | Exception]:
        """Many swaps, in one trip where `facts.batch` says so. Returns an outcome or an exception
        for each, in their order."""
        return [_outcome(self, swap, by) for swap in swaps]

    def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """Hold a record still, call `change` with what is there, and write what it decides, where
        `facts.amends` says so. `change` may be called again; what it raises is passed on, and
        nothing is written. The clock in its entry is read after this call began."""
        raise Unsupported(f"The {self.facts.name} store does not hold records still.")

    def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        """Run a whole command in one trip, where `facts.scripted` says so."""
        raise Unsupported(f"The {self.facts.name} store does not run commands by itself.")

    def apply_many(self, applies: Sequence[Apply], by: Micros = NEVER) -> list[Applied | Exception]:
        """Many commands, in one trip where `facts.batch` says so. Returns an answer or an exception
        for each, in their order."""
        return [_applied(self, apply, by) for apply in applies]

    def setup(self) -> None:
        """Create what the store needs. May be repeated, also by many processes at once."""

    def ddl(self) -> str:
        """Returns what `setup` would run, as text for an administrator."""
        raise Unsupported(f"The {self.facts.name} store has no statements to print.")

    def close(self) -> None:
        """Close the connections. Waiting calls return."""

    def to_async(self) -> AsyncStore:
        """Returns the asyncio face of this store."""
        from holdfast.stores.async_adapters import ThreadedStore

        return ThreadedStore(self)

    def abandon(self) -> None:
        """Forget the connections without touching them: this is a forked child's copy."""

    def for_child(self) -> Store:
        """Returns the same store for a forked child, which has connections and threads of its own.

        Called on a copy of the parent's store, after `abandon`, when the child first uses it. It
        must not touch what belongs to the parent: connections, threads, or locks that a thread of
        the parent may have held when it forked."""
        raise ClientForked(
            f"A {type(self).__name__} cannot be used across a fork: call holdfast.connect() in the "
            f"child process, or give the store a method for_child()."
        )


def _outcome(store: Store, swap: Swap, by: Micros) -> Outcome | Exception:
    try:
        return store.swap(swap.key, swap.version, swap.record, swap.wake, by)
    except Exception as trouble:
        return trouble


def _applied(store: Store, apply: Apply, by: Micros) -> Applied | Exception:
    try:
        return store.apply(apply.key, apply.command, apply.beat, by)
    except Exception as trouble:
        return trouble


class AsyncStore(ABC):
    """The same for asyncio. When a cancelled call returns, its write was done or never will be."""

    facts: Facts
    of_one_loop = False  # its connections belong to the event loop on which they were opened

    def moved(self) -> AsyncStore:
        """Returns the same store for another event loop, after the one before was closed. Only
        called on a store that is `of_one_loop`."""
        raise NotImplementedError

    @abstractmethod
    async def load(self, key: str, by: Micros = NEVER) -> Entry: ...

    @abstractmethod
    async def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome: ...

    @abstractmethod
    async def scan(
        self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER
    ) -> Page: ...

    @abstractmethod
    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found: ...

    async def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """Change a record while the store holds it still, where `facts.amends` says so."""
        raise Unsupported(f"The {self.facts.name} store does not hold records still.")

    async def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        """Run a whole command in one trip, where `facts.scripted` says so."""
        raise Unsupported(f"The {self.facts.name} store does not run commands by itself.")

    @abstractmethod
    async def setup(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Close the connections, also those of the blocking store, which renewals use. Waiting
        calls return."""


def entry_from(raw: bytes | str, version: Version, now: Interval | None) -> Entry:
    """Returns the entry of a stored text. A text that cannot be read becomes the entry's fault."""
    try:
        return Entry(decode(raw), version, now)
    except Undecodable as why:
        return faulty_entry(why, version, now)


def faulty_entry(why: Undecodable, version: Version, now: Interval | None) -> Entry:
    """Returns the entry of a record that cannot be read."""
    return Entry(version=version, now=now, fault=str(why), newer=isinstance(why, NewerFormat))
