"""Holdfast itself, on every store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar

import holdfast
from benchmarks.peers.base import AsyncPeer, Kind, Peer
from benchmarks.sites import SITES, Place
from holdfast import aio


class Holdfast(Peer):
    """`holdfast.connect`, with its defaults."""

    stores = tuple(SITES)
    name = "holdfast"
    package = "holdfast"
    modules = ("holdfast.stores.redis", "holdfast.stores.sql", "holdfast.stores.sqlite")
    kind: ClassVar[Kind] = "ours"
    shares = True

    def __init__(self, place: Place) -> None:
        self.locks = holdfast.connect(place.url)

    def lock(self, key: str) -> AbstractContextManager[Any]:
        return self.locks.acquire(key)

    def shared(self, key: str) -> AbstractContextManager[Any]:
        return self.locks.acquire(key, mode="shared")

    def close(self) -> None:
        self.locks.close()


class HoldfastWithoutLines(Holdfast):
    """`holdfast.connect(pass_on=False)`: each thread goes to the store for itself, as all did in
    0.1.0."""

    name = "holdfast, pass_on=False"
    kind = "peer"
    only = "threads-together"
    prominent = False  # a quick run has no time for it

    def __init__(self, place: Place) -> None:
        self.locks = holdfast.connect(place.url, pass_on=False)


class HoldfastAio(AsyncPeer):
    """`holdfast.aio.connect`."""

    stores = tuple(SITES)
    name = "holdfast.aio"
    package = "holdfast"
    kind = "ours"

    def __init__(self, place: Place) -> None:
        self._url = place.url

    async def open(self) -> None:
        self._locks = aio.connect(self._url)

    def lock(self, key: str) -> AbstractAsyncContextManager[Any]:
        return self._locks.acquire(key)

    async def close(self) -> None:
        await self._locks.close()
