"""What the blocking and the asyncio store on one bucket share: the bucket, the protocol with what
it remembers, and the facts."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from obstore.store import AzureStore, LocalStore, MemoryStore

from holdfast.core.contract import Facts
from holdfast.core.records import SECOND
from holdfast.stores.base import AsyncStore
from holdfast.stores.blob.bucket import Bucket
from holdfast.stores.blob.connect import Settings, adopt_bucket, open_bucket
from holdfast.stores.blob.protocol import Conditional, LastWriter
from holdfast.stores.blob.service_clock import Precision, ServiceClock
from holdfast.stores.url import StoreURL
from holdfast.stores.waiting.polling_store import POLLED

FACTS = replace(
    POLLED,
    name="blob",
    clock_always=False,
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


class Opened(Struct, frozen=True):
    """A bucket that is ready to be used."""

    bucket: Bucket
    protocol: Conditional
    facts: Facts

    def asyncio_store(self) -> AsyncStore:
        """Returns the asyncio store on it."""
        from holdfast.stores.blob.store_async import AsyncBlobStore

        return AsyncBlobStore(self)


def open_url(url: StoreURL, options: dict[str, Any]) -> Opened:
    """Open the bucket that a URL names."""
    return _opened(*open_bucket(url, options))


def adopt(found: Any, options: dict[str, Any]) -> Opened:
    """Open the bucket that an open store of obstore's stands for."""
    return _opened(*adopt_bucket(found, options))


def _opened(bucket: Bucket, settings: Settings) -> Opened:
    precision = _precision(bucket, settings)
    reach: Any = "process" if isinstance(bucket.store, MemoryStore) else "network"
    facts = replace(FACTS, clock_doubt=precision.doubt, reach=reach)
    kind = Conditional
    if settings.protocol == "last-writer":
        kind = LastWriter
        facts = replace(facts, linearizable=False, caveats=_BEST_EFFORT)
    protocol = kind(ServiceClock(precision), errors_tell_time=isinstance(bucket.store, AzureStore))
    return Opened(bucket, protocol, facts)


def _precision(bucket: Bucket, settings: Settings) -> Precision:
    if isinstance(bucket.store, MemoryStore):
        return Precision(step=1000, skew=0)
    if isinstance(bucket.store, LocalStore):
        return Precision(step=SECOND // 100, skew=0)
    return settings.precision
