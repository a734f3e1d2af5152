"""Carries the requests of the protocol out, through obstore."""

from __future__ import annotations

from typing import Any, TypeVar

import obstore

from holdfast.core.records import SECOND
from holdfast.runtime.flavour import ASYNC
from holdfast.runtime.run_async import run
from holdfast.stores.blob import requests as ask
from holdfast.stores.blob.bucket import Bucket

if ASYNC:
    import asyncio
else:
    import threading
    from concurrent.futures import ThreadPoolExecutor

R = TypeVar("R")
# How many requests of a `Several` are under way at a time.
AT_ONCE = 16


class AsyncTransport:
    """Requests to one bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        if ASYNC:
            self._closed = asyncio.Event()
        else:
            self._closed = threading.Event()
        self._kinds: dict[type, Any] = {
            ask.Get: self._get,
            ask.Head: self._head,
            ask.Put: self._put,
            ask.Delete: self._delete,
            ask.Names: self._names,
        }
        self._awaited: dict[type, Any] = {
            **dict.fromkeys(self._kinds, self._answer),
            ask.Several: self._several,
            ask.Pause: self._pause,
        }

    async def run(self, calls: ask.Calls[R]) -> R:
        """Carry out what the protocol asks for, and return what it returns."""
        return await run(calls, {}, self._awaited)

    def close(self) -> None:
        """End all pauses."""
        self._closed.set()

    async def _answer(self, request: ask.Request) -> Any:
        try:
            return await self._kinds[type(request)](request)
        except Exception as exc:
            return self._bucket.answer_to(request, exc)

    # --- single requests --------------------------------------------------------------------

    async def _get(self, request: ask.Get) -> ask.Found:
        bucket = self._bucket
        options = bucket.get_options(request)
        result = await obstore.get_async(bucket.store, bucket.path(request.name), options=options)
        return bucket.found(result.meta, bytes(await result.bytes_async()))

    async def _head(self, request: ask.Head) -> ask.Found:
        bucket = self._bucket
        return bucket.found(await obstore.head_async(bucket.store, bucket.path(request.name)), b"")

    async def _put(self, request: ask.Put) -> ask.Written:
        bucket = self._bucket
        options, path = bucket.put_options(request), bucket.path(request.name)
        meta = await obstore.put_async(bucket.store, path, request.body, **options)
        return ask.Written(bucket.version_in(meta))

    async def _delete(self, request: ask.Delete) -> ask.Missing:
        await obstore.delete_async(self._bucket.store, self._bucket.path(request.name))
        return ask.Missing()

    async def _names(self, request: ask.Names) -> list[str]:
        names: list[str] = []
        async for chunk in self._bucket.listing(request):
            if not self._bucket.collect(request, chunk, names):
                break
        return sorted(names)[: request.limit]

    # --- many, and none ---------------------------------------------------------------------

    async def _several(self, request: ask.Several) -> list[Any]:
        if ASYNC:
            gate = asyncio.Semaphore(AT_ONCE)

            async def one(wanted: ask.Get) -> Any:
                async with gate:
                    return await self._answer(wanted)

            return list(await asyncio.gather(*map(one, request.requests)))
        else:
            with ThreadPoolExecutor(AT_ONCE, "holdfast-blob") as pool:
                return list(pool.map(self._answer, request.requests))

    async def _pause(self, request: ask.Pause) -> bool:
        """Returns True if the transport was closed meanwhile."""
        seconds = request.duration / SECOND
        if ASYNC:
            try:
                async with asyncio.timeout(seconds):
                    return await self._closed.wait()
            except TimeoutError:
                return False
        else:
            return self._closed.wait(seconds)
