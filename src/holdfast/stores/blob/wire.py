"""Requests carried out by obstore, blocking or awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError
from obstore.store import LocalStore

from holdfast.core.contract import Version
from holdfast.core.records import SECOND
from holdfast.stores.blob.errors import from_obstore, no_bucket, time_in, trouble
from holdfast.stores.blob.names import SUFFIX, before
from holdfast.stores.blob.requests import (
    Answer,
    Calls,
    Delete,
    Found,
    Get,
    Head,
    Missing,
    Names,
    Pause,
    Put,
    Request,
    Several,
    Unchanged,
    Unmet,
    Written,
)

R = TypeVar("R")
AT_ONCE = 16
# Google caches what everybody may read, for an hour, unless told not to.
_KIND = {"Content-Type": "application/json", "Cache-Control": "no-store"}


class Place:
    """One obstore store, where in it our objects are, and how it wants to be asked."""

    def __init__(
        self, store: Any, prefix: str, where: str, *, by_generation: bool, in_order: bool = True
    ) -> None:
        self.store = store
        self.where = where
        self._prefix = prefix or None
        self._folder = f"{prefix}/" if prefix else ""
        self._by_generation = by_generation  # versions are GCS's generations, not ETags
        self._in_order = in_order

    def path(self, name: str) -> str:
        """Where an object of ours is."""
        return self._folder + name

    # --- requests in obstore's terms ----------------------------------------------------------

    def call_for(self, request: Request) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """The name of obstore's function, and its arguments."""
        assert isinstance(request, (Get, Head, Put, Delete))
        path = self.path(request.name)
        if isinstance(request, Get):
            known = None if self._by_generation else request.unless  # which is not an ETag
            return "get", (path,), {"options": {"if_none_match": known} if known else None}
        if isinstance(request, Put):
            options = {"mode": self._mode(request), "use_multipart": False}
            if not isinstance(self.store, LocalStore):
                options["attributes"] = _KIND
            return "put", (path, request.body), options
        return ("head" if isinstance(request, Head) else "delete"), (path,), {}

    def _mode(self, request: Put) -> Any:
        if request.anyway:
            return "overwrite"
        if request.only is None:
            return "create"
        return {"version" if self._by_generation else "e_tag": request.only}

    def _version(self, meta: Any) -> Version:
        return meta["version"] if self._by_generation else meta["e_tag"]

    def answer_from(self, request: Request, result: Any, body: bytes) -> Answer:
        """obstore's answer in ours."""
        if isinstance(request, Put):
            return Written(self._version(result))
        if isinstance(request, Delete):
            return Missing()
        meta = result.meta if isinstance(request, Get) else result
        return Found(body, self._version(meta), meta["last_modified"])

    def answer_to(self, request: Request, exc: Exception) -> Answer:
        """What an exception of obstore's says; raises if it says nothing."""
        if not from_obstore(exc):
            raise exc
        if not no_bucket(exc):
            if isinstance(exc, NotModifiedError):
                return Unchanged()
            if isinstance(exc, (AlreadyExistsError, PreconditionError)):
                return Unmet()
            if isinstance(exc, FileNotFoundError) and _may_be_missing(request):
                # A conditional write finds nothing there: some services say so in this way.
                return Unmet() if isinstance(request, Put) else Missing(time_in(exc))
        raise trouble(exc, self.where, writing=isinstance(request, (Put, Delete))) from exc

    # --- listings -----------------------------------------------------------------------------

    def listing(self, request: Names) -> Any:
        """obstore's stream of what may be in a page."""
        after = request.after or before(request.start)
        offset = self._folder + after if after else None
        size = min(request.limit + 1, 1000)
        return obstore.list(self.store, self._prefix, offset=offset, chunk_size=size)

    def names_in(self, request: Names, chunk: Iterable[Any], found: list[str]) -> bool:
        """Add the names of ours in a part of a listing. False: there is no need to go on."""
        for meta in chunk:
            name = meta["path"].removeprefix(self._folder)
            if name.startswith(request.start):
                if "/" not in name and name.endswith(SUFFIX) and name > (request.after or ""):
                    found.append(name)
            elif self._in_order and name > request.start:
                return False
        return not self._in_order or len(found) < request.limit

    def first(self, request: Names, found: list[str]) -> list[str]:
        """The page out of the names that were found."""
        return sorted(found)[: request.limit]


def _may_be_missing(request: Request) -> bool:
    """Whether the answer may be that there is no such object, and not only that the bucket, or
    the service, is not where it was looked for."""
    if isinstance(request, Put):
        return request.only is not None
    return not isinstance(request, Names)


class Wire:
    """Carries requests out, one after the other."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._closed = threading.Event()

    def run(self, calls: Calls[R]) -> R:
        """Carry out what these calls ask for, to their end."""
        got: Any = None
        failed: Exception | None = None
        while True:
            try:
                request = calls.send(got) if failed is None else calls.throw(failed)
            except StopIteration as end:
                result: R = end.value
                return result
            try:
                got, failed = self._answer(request), None
            except Exception as exc:
                got, failed = None, exc

    def close(self) -> None:
        """Pauses end."""
        self._closed.set()

    def _answer(self, request: Request) -> Any:
        if isinstance(request, Pause):
            return self._closed.wait(request.duration / SECOND)
        if isinstance(request, Several):
            with ThreadPoolExecutor(AT_ONCE, "holdfast-blob") as pool:
                return list(pool.map(self._answer, request.requests))
        try:
            return self._names(request) if isinstance(request, Names) else self._one(request)
        except Exception as exc:
            return self._place.answer_to(request, exc)

    def _one(self, request: Request) -> Answer:
        name, arguments, options = self._place.call_for(request)
        result = getattr(obstore, name)(self._place.store, *arguments, **options)
        body = bytes(result.bytes()) if isinstance(request, Get) else b""
        return self._place.answer_from(request, result, body)

    def _names(self, request: Names) -> list[str]:
        found: list[str] = []
        for chunk in self._place.listing(request):
            if not self._place.names_in(request, chunk, found):
                break
        return self._place.first(request, found)


class AsyncWire:
    """The same for asyncio."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._closed = asyncio.Event()

    async def run(self, calls: Calls[R]) -> R:
        """Carry out what these calls ask for, to their end."""
        got: Any = None
        failed: Exception | None = None
        while True:
            try:
                request = calls.send(got) if failed is None else calls.throw(failed)
            except StopIteration as end:
                result: R = end.value
                return result
            try:
                got, failed = await self._answer(request), None
            except Exception as exc:
                got, failed = None, exc

    def close(self) -> None:
        """Pauses end."""
        self._closed.set()

    async def _answer(self, request: Request) -> Any:
        if isinstance(request, Pause):
            return await self._pause(request.duration / SECOND)
        if isinstance(request, Several):
            return await self._several(request)
        try:
            if isinstance(request, Names):
                return await self._names(request)
            return await self._one(request)
        except Exception as exc:
            return self._place.answer_to(request, exc)

    async def _pause(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closed.wait()
        except TimeoutError:
            return False

    async def _several(self, request: Several) -> list[Any]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(wanted: Get) -> Any:
            async with gate:
                return await self._answer(wanted)

        return list(await asyncio.gather(*map(one, request.requests)))

    async def _one(self, request: Request) -> Answer:
        name, arguments, options = self._place.call_for(request)
        result = await getattr(obstore, f"{name}_async")(self._place.store, *arguments, **options)
        body = bytes(await result.bytes_async()) if isinstance(request, Get) else b""
        return self._place.answer_from(request, result, body)

    async def _names(self, request: Names) -> list[str]:
        found: list[str] = []
        stream: AsyncIterator[Any] = self._place.listing(request)
        async for chunk in stream:
            if not self._place.names_in(request, chunk, found):
                break
        return self._place.first(request, found)
