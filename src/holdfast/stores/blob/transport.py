# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Carries the requests of the protocol out, through obstore."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, TypeVar

import obstore

from holdfast.core.records import NEVER, SECOND, Micros
from holdfast.runtime.pool import DaemonPool
from holdfast.runtime.run import run
from holdfast.stores.blob import requests as ask
from holdfast.stores.blob.bucket import Bucket
from holdfast.stores.blob.obstore_runtime import about_to_use
from holdfast.stores.detached import DetachedCalls

R = TypeVar("R")
# How many requests of a `Several` are under way at a time.
AT_ONCE = 16


class Transport:
    """Requests to one bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
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

    def run(self, calls: ask.Calls[R], by: Micros = NEVER) -> R:
        """Carry out what the protocol asks for, and return what it returns."""
        about_to_use(self._bucket.name)
        awaited = {kind: partial(answer, by=by) for kind, answer in self._awaited.items()}
        return run(calls, {}, awaited)

    def close(self) -> None:
        """End all pauses."""
        self._closed.set()
        self._calls.close()

    def _answer(self, request: ask.Request, by: Micros = NEVER) -> Any:
        try:
            return self._in_time(request, by)
        except Exception as exc:
            return self._bucket.answer_to(request, exc)

    def _in_time(self, request: ask.Request, by: Micros) -> Any:
        """obstore's time-outs are those of a client, not of a request, and its blocking calls
        cannot be interrupted."""
        call = self._kinds[type(request)]
        writing = isinstance(request, (ask.Put, ask.Delete))
        return self._calls.run(partial(call, request), by, writing=writing)

    # --- single requests --------------------------------------------------------------------

    def _get(self, request: ask.Get) -> ask.Found:
        bucket = self._bucket
        options = bucket.get_options(request)
        result = obstore.get(bucket.store, bucket.path(request.name), options=options)
        return bucket.found(result.meta, bytes(result.bytes()))

    def _head(self, request: ask.Head) -> ask.Found:
        bucket = self._bucket
        return bucket.found(obstore.head(bucket.store, bucket.path(request.name)), b"")

    def _put(self, request: ask.Put) -> ask.Written:
        bucket = self._bucket
        options, path = bucket.put_options(request), bucket.path(request.name)
        meta = obstore.put(bucket.store, path, request.body, **options)
        return ask.Written(bucket.version_in(meta))

    def _delete(self, request: ask.Delete) -> ask.Missing:
        obstore.delete(self._bucket.store, self._bucket.path(request.name))
        return ask.Missing()

    def _names(self, request: ask.Names) -> list[str]:
        names: list[str] = []
        for chunk in self._bucket.listing(request):
            if not self._bucket.collect(request, chunk, names):
                break
        return sorted(names)[: request.limit]

    # --- many, and none ---------------------------------------------------------------------

    def _several(self, request: ask.Several, by: Micros) -> list[Any]:
        pool = DaemonPool(AT_ONCE, "holdfast-blobs")
        try:
            futures = [pool.submit(partial(self._answer, one, by)) for one in request.requests]
            return [future.result() for future in futures]
        finally:
            pool.close()

    def _pause(self, request: ask.Pause, by: Micros) -> bool:
        """Returns True if the transport was closed meanwhile."""
        seconds = request.duration / SECOND
        return self._closed.wait(seconds)
