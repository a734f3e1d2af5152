"""What a store implements.

`Store` is the blocking face, and the only one that must be written: `to_async` gives an
asyncio face over threads, unless the engine has a native one. A store only moves records;
what they mean is in `holdfast.core`. Its methods raise

    Unavailable, Misconfigured   when the request was surely not carried out
    OutcomeUnknown               when it left and no answer came back

and keep the driver's own exception as `__cause__`. All methods may be called from several
threads at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import (
    Applied,
    Conflict,
    Entry,
    Facts,
    Interval,
    Page,
    Swapped,
    Version,
)
from holdfast.core.effects import Apply, Swap
from holdfast.core.records import Micros, NewerFormat, Record, Undecodable, decode
from holdfast.errors import Unsupported

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
    def load(self, key: str) -> Entry:
        """What is there now, with the store's clock."""

    @abstractmethod
    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """Write if the version is still this one (None: if there is no record); a record
        of None deletes. `wake` names the queued tokens that this write may let in."""

    @abstractmethod
    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """A page of the records whose keys start like this, each once, and where to go on. In the
        order of the keys' bytes where the engine can, else in one that stays."""

    @abstractmethod
    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        """Return when the key may have changed for this token, or after a time. The answer is
        what a load would have shown at some time since then, if that is known anyway."""

    def swap_many(self, swaps: Sequence[Swap]) -> list[Outcome | Exception]:
        """Many swaps; in one trip where `facts.batch` says so."""
        return [_outcome(self, swap) for swap in swaps]

    def apply(self, key: str, command: Command, beat: str) -> Applied:
        """Run a whole command in one trip, where `facts.scripted` says so."""
        raise Unsupported(f"The {self.facts.name} store does not run commands by itself.")

    def apply_many(self, applies: Sequence[Apply]) -> list[Applied | Exception]:
        """Many commands; in one trip where `facts.batch` says so."""
        return [_applied(self, apply) for apply in applies]

    def setup(self) -> None:
        """Create what the store needs; harmless to repeat, also from many processes at once."""

    def ddl(self) -> str:
        """What `setup` would run, as text for an administrator."""
        raise Unsupported(f"The {self.facts.name} store has no statements to print.")

    def close(self) -> None:
        """Let go of connections. Waiting calls return."""

    def to_async(self) -> AsyncStore:
        """The asyncio face of this store."""
        from holdfast.stores.async_adapters import ThreadedStore

        return ThreadedStore(self)

    def abandon(self) -> None:
        """After a fork, in the child: forget connections without touching them."""


def _outcome(store: Store, swap: Swap) -> Outcome | Exception:
    try:
        return store.swap(swap.key, swap.version, swap.record, swap.wake)
    except Exception as trouble:
        return trouble


def _applied(store: Store, apply: Apply) -> Applied | Exception:
    try:
        return store.apply(apply.key, apply.command, apply.beat)
    except Exception as trouble:
        return trouble


class AsyncStore(ABC):
    """The same for asyncio. A cancelled call has either finished its write or never will."""

    facts: Facts
    of_one_loop = False  # what it has open belongs to the event loop on which it is used

    def moved(self) -> AsyncStore:
        """The same for another event loop, now that the one before is closed. Only asked of a
        store that is `of_one_loop`."""
        raise NotImplementedError

    @abstractmethod
    async def load(self, key: str) -> Entry: ...

    @abstractmethod
    async def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome: ...

    @abstractmethod
    async def scan(self, prefix: str, cursor: str | None, limit: int) -> Page: ...

    @abstractmethod
    async def wait(
        self, key: str, version: Version, token: str, at_most: Micros
    ) -> Entry | None: ...

    async def apply(self, key: str, command: Command, beat: str) -> Applied:
        """Run a whole command in one trip, where `facts.scripted` says so."""
        raise Unsupported(f"The {self.facts.name} store does not run commands by itself.")

    @abstractmethod
    async def setup(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections, of the blocking store too, from which renewals came. Waiting
        calls return."""


def entry_from(raw: bytes | str, version: Version, now: Interval | None) -> Entry:
    """An entry from stored text; what cannot be read becomes its fault, not an error."""
    try:
        return Entry(decode(raw), version, now)
    except Undecodable as why:
        return faulty_entry(why, version, now)


def faulty_entry(why: Undecodable, version: Version, now: Interval | None) -> Entry:
    """The entry of a record that cannot be read."""
    return Entry(version=version, now=now, fault=str(why), newer=isinstance(why, NewerFormat))
