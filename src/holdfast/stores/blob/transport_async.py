"""Carries the requests of the protocol out, through obstore."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import obstore

from holdfast.core.records import NEVER, SECOND, Micros
from holdfast.runtime.flavour import ASYNC
from holdfast.runtime.run_async import run
from holdfast.stores.blob import requests as ask
from holdfast.stores.blob.bucket import Bucket
from holdfast.stores.blob.obstore_runtime import about_to_use

if ASYNC:
    import asyncio

    from holdfast.stores.deadlines import seconds_to_send, unanswered
else:
    import threading

    from holdfast.runtime.pool import DaemonPool
    from holdfast.stores.detached import DetachedCalls

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
            self._calls = DetachedCalls("holdfast-blob")
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

    async def run(self, calls: ask.Calls[R], by: Micros = NEVER) -> R:
        """Carry out what the protocol asks for, and return what it returns."""
        about_to_use(self._bucket.name)
        awaited = {kind: partial(answer, by=by) for kind, answer in self._awaited.items()}
        return await run(calls, {}, awaited)

    def close(self) -> None:
        """End all pauses."""
        self._closed.set()
        if not ASYNC:
            self._calls.close()

    async def _answer(self, request: ask.Request, by: Micros = NEVER) -> Any:
        try:
            return await self._in_time(request, by)
        except Exception as exc:
            return self._bucket.answer_to(request, exc)

    async def _in_time(self, request: ask.Request, by: Micros) -> Any:
        """obstore's time-outs are those of a client, not of a request, and its blocking calls
        cannot be interrupted."""
        call = self._kinds[type(request)]
        writing = isinstance(request, (ask.Put, ask.Delete))
        if ASYNC:
            try:
                async with asyncio.timeout(seconds_to_send(by)):
                    return await call(request)
            except TimeoutError:
                raise unanswered(writing=writing)  # noqa: B904 (it has its cause)
        else:
            return self._calls.run(partial(call, request), by, writing=writing)

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

    async def _several(self, request: ask.Several, by: Micros) -> list[Any]:
        if ASYNC:
            gate = asyncio.Semaphore(AT_ONCE)

            async def one(wanted: ask.Get) -> Any:
                async with gate:
                    return await self._answer(wanted, by)

            return list(await asyncio.gather(*map(one, request.requests)))
        else:
            pool = DaemonPool(AT_ONCE, "holdfast-blobs")
            try:
                futures = [pool.submit(partial(self._answer, one, by)) for one in request.requests]
                return [future.result() for future in futures]
            finally:
                pool.close()

    async def _pause(self, request: ask.Pause, by: Micros) -> bool:
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
