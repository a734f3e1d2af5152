"""The blob store: records as objects, compared and swapped by ETag or generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from obstore.store import AzureStore, LocalStore, MemoryStore

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Facts, Page, Version
from holdfast.core.records import SECOND, Micros, Record
from holdfast.stores.async_adapters import finish
from holdfast.stores.base import AsyncStore, Outcome, Store
from holdfast.stores.blob.clock import Grain, ServiceClock
from holdfast.stores.blob.connect import Settings, adopt_place, open_source
from holdfast.stores.blob.forked import about_to_use
from holdfast.stores.blob.protocol import Conditional, LastWriter
from holdfast.stores.blob.requests import Calls, Names
from holdfast.stores.blob.wire import AsyncWire, Place, Wire

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

FACTS = Facts(
    name="blob",
    linearizable=True,
    clock="store",
    clock_always=False,
    reach="network",
    wakeup="poll",
    durable=True,
    native_async=True,
    caveats=(
        "A dropped record leaves a mark of about a hundred bytes: blobs have no conditional "
        "delete here.",
    ),
)
_BEST_EFFORT = (
    "Last writer wins: the store does not compare. A write that is slower than the margin, by "
    "a pause or a slow network, can make two parties believe that they hold; only a check of "
    "the fence by what the lock protects tells them apart.",
)


class BlobStore(Store):
    """Objects in a bucket or container, through obstore."""

    facts = FACTS

    def __init__(self, place: Place, settings: Settings) -> None:
        about_to_use(place.where)
        self.place = place
        grain = _grain(place, settings)
        self.facts = replace(FACTS, clock_doubt=grain.doubt, reach=_reach(place))
        kind = Conditional
        if settings.protocol == "last-writer":
            kind = LastWriter
            self.facts = replace(self.facts, linearizable=False, caveats=_BEST_EFFORT)
        told = isinstance(place.store, AzureStore)
        self.protocol = kind(ServiceClock(grain), errors_tell_time=told)
        self._wire = Wire(place)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> Store:
        """`s3://bucket/prefix`, `az://container/prefix`, `gs://bucket/prefix`."""
        return cls(*open_source(url, options))

    @classmethod
    def from_object(cls, found: Any, **options: Any) -> Store:
        """A store of obstore's that is open already."""
        if isinstance(found, LocalStore):
            from holdfast.stores.blob.directory import DirectoryStore

            return DirectoryStore(found.prefix or "/", **options)
        return cls(*adopt_place(found, options))

    def load(self, key: str) -> Entry:
        """A GET."""
        return self._wire.run(self.protocol.load_calls(key))

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """A conditional PUT."""
        return self._wire.run(self.protocol.swap_calls(key, version, record))

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """A listing in the order of the objects' names, and a GET for each."""
        return self._wire.run(self.protocol.scan_calls(prefix, cursor, limit))

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        """Conditional GETs, less and less often."""
        return self._wire.run(self.protocol.wait_calls(key, version, token, at_most))

    def setup(self) -> None:
        """Nothing to create: see that the bucket is there and can be listed."""
        self._wire.run(check_calls())

    def close(self) -> None:
        """Waiting calls return."""
        self._wire.close()

    def to_async(self) -> AsyncStore:
        """obstore has an asyncio face of its own."""
        return AsyncBlobStore(self)


class AsyncBlobStore(AsyncStore):
    """The same requests, awaited."""

    of_one_loop = True

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self.facts = store.facts
        self._protocol = store.protocol
        self._wire = AsyncWire(store.place)

    async def load(self, key: str) -> Entry:
        return await self._wire.run(self._protocol.load_calls(key))

    async def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        return await finish(self._wire.run(self._protocol.swap_calls(key, version, record)))

    async def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        return await self._wire.run(self._protocol.scan_calls(prefix, cursor, limit))

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        return await self._wire.run(self._protocol.wait_calls(key, version, token, at_most))

    async def setup(self) -> None:
        await self._wire.run(check_calls())

    def moved(self) -> AsyncStore:
        return self._store.to_async()

    async def close(self) -> None:
        self._wire.close()


def check_calls() -> Calls[None]:
    """The smallest request that needs the bucket."""
    yield Names("", None, 1)


def _grain(place: Place, settings: Settings) -> Grain:
    if isinstance(place.store, MemoryStore):
        return Grain(step=1000, skew=0)
    if isinstance(place.store, LocalStore):
        return Grain(step=SECOND // 100, skew=0)
    return settings.grain


def _reach(place: Place) -> Any:
    return "process" if isinstance(place.store, MemoryStore) else "network"
