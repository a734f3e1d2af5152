"""The blob store: records as objects, compared and swapped by ETag or generation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Page, Version
from holdfast.core.records import NEVER, Micros, Record
from holdfast.runtime.flavour import ASYNC
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.blob.opened import Opened, adopt, open_url
from holdfast.stores.blob.protocol import check_calls
from holdfast.stores.blob.transport_async import AsyncTransport

if ASYNC:
    from holdfast.stores.async_adapters import finish
else:
    from obstore.store import LocalStore

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL


class AsyncBlobStore(AsyncStore):
    """Objects in a bucket or container, through obstore."""

    if ASYNC:
        of_one_loop = True

    def __init__(self, opened: Opened, reopen: Callable[[], Opened] | None = None) -> None:
        self._opened = opened
        self._reopen = reopen
        self.bucket = opened.bucket
        self.facts = opened.facts
        self.protocol = opened.protocol
        self._transport = AsyncTransport(opened.bucket)

    if not ASYNC:

        @classmethod
        def from_url(cls, url: StoreURL, **options: Any) -> AsyncBlobStore:
            """`s3://bucket/prefix`, `az://container/prefix`, `gs://bucket/prefix`."""
            reopen = functools.partial(open_url, url, options)
            return cls(reopen(), reopen)

        @classmethod
        def from_object(cls, found: Any, **options: Any) -> AsyncStore:
            """On a store of obstore's that is open already."""
            if isinstance(found, LocalStore):
                from holdfast.stores.directory.store import DirectoryStore

                return DirectoryStore(found.prefix or "/", **options)
            reopen = functools.partial(adopt, found, options)
            return cls(reopen(), reopen)

    async def load(self, key: str, by: Micros = NEVER) -> Entry:
        """One GET."""
        return await self._transport.run(self.protocol.load_calls(key), by)

    async def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """One conditional PUT."""
        calls = self.protocol.swap_calls(key, version, record)
        if ASYNC:
            return await finish(self._transport.run(calls, by))
        else:
            return self._transport.run(calls, by)

    async def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """A listing in the order of the objects' names, and a GET for each."""
        return await self._transport.run(self.protocol.scan_calls(prefix, cursor, limit), by)

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        """Conditional GETs, less and less often."""
        return await self._transport.run(self.protocol.wait_calls(key, version, token, at_most))

    async def setup(self) -> None:
        """Check that the bucket is there and can be listed: there is nothing to create."""
        await self._transport.run(check_calls())

    async def close(self) -> None:
        """Let waiting calls return."""
        self._transport.close()

    if ASYNC:

        def moved(self) -> AsyncStore:
            """Returns a store on the same bucket for another event loop."""
            return AsyncBlobStore(self._opened)
    else:

        def to_async(self) -> Any:
            """Returns the asyncio store on the same bucket: obstore has calls for asyncio."""
            return self._opened.asyncio_store()

        def for_child(self) -> AsyncStore:
            """Returns a store that has not asked for anything yet."""
            if self._reopen is None or self.facts.reach == "process":
                return super().for_child()
            return type(self)(self._reopen(), self._reopen)
