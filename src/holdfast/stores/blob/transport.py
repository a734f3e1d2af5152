# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Carries the requests of the protocol out, through obstore."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import obstore

from holdfast.core.records import SECOND
from holdfast.runtime.run import run
from holdfast.stores.blob import requests as ask
from holdfast.stores.blob.bucket import Bucket

R = TypeVar("R")
# How many requests of a `Several` are under way at a time.
AT_ONCE = 16


class Transport:
    """Requests to one bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
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

    def run(self, calls: ask.Calls[R]) -> R:
        """Carry out what the protocol asks for, and return what it returns."""
        return run(calls, {}, self._awaited)

    def close(self) -> None:
        """End all pauses."""
        self._closed.set()

    def _answer(self, request: ask.Request) -> Any:
        try:
            return self._kinds[type(request)](request)
        except Exception as exc:
            return self._bucket.answer_to(request, exc)

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

    def _several(self, request: ask.Several) -> list[Any]:
        with ThreadPoolExecutor(AT_ONCE, "holdfast-blob") as pool:
            return list(pool.map(self._answer, request.requests))

    def _pause(self, request: ask.Pause) -> bool:
        """Returns True if the transport was closed meanwhile."""
        seconds = request.duration / SECOND
        return self._closed.wait(seconds)
