"""What every contestant is: something that gives a lock for a key on a store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from benchmarks.sites import Place

Kind = Literal["ours", "peer", "floor"]
TTL_S = 30


class Contestant(ABC):
    """One library on one or more stores. It imports its library when it is made."""

    stores: ClassVar[tuple[str, ...]] = ()  # none: a base of others
    name: ClassVar[str]
    package: ClassVar[str]
    # What is imported once for all processes that it takes part in.
    modules: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[Kind] = "peer"
    # Locks of the same library where a reader does not shut out readers.
    shares: ClassVar[bool] = False
    # Whether it is in the pictures of how cost grows, and in quick runs of slow workloads.
    prominent: ClassVar[bool] = True
    # Whether importing it takes seconds, which a quick run does not have.
    heavy: ClassVar[bool] = False
    # The name of the one workload that it takes part in; empty: all.
    only: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, place: Place) -> None: ...


class Peer(Contestant):
    """A blocking one. Used from several threads at once, each with keys of its own."""

    @abstractmethod
    def lock(self, key: str) -> AbstractContextManager[Any]:
        """The lock; entering waits for it, leaving frees it."""

    def shared(self, key: str) -> AbstractContextManager[Any]:
        """The same for one reader of many, where `shares` says so."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections."""


class AsyncPeer(Contestant):
    """One for asyncio."""

    async def open(self) -> None:
        """Connect, inside the event loop."""

    @abstractmethod
    def lock(self, key: str) -> AbstractAsyncContextManager[Any]:
        """The lock, to be used with `async with`."""

    async def close(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True)
class Entrant:
    """A contestant at its place; can be sent to another process."""

    contestant: type[Contestant]
    place: Place

    @property
    def ours(self) -> bool:
        """Whether it is us."""
        return self.contestant.kind == "ours"

    @contextmanager
    def peer(self) -> Iterator[Peer]:
        """Opened, until the block ends."""
        os.environ.update(self.place.environment)
        peer = self.contestant(self.place)
        assert isinstance(peer, Peer)
        try:
            yield peer
        finally:
            peer.close()

    @asynccontextmanager
    async def async_peer(self) -> AsyncIterator[AsyncPeer]:
        """The same in an event loop."""
        os.environ.update(self.place.environment)
        peer = self.contestant(self.place)
        assert isinstance(peer, AsyncPeer)
        await peer.open()
        try:
            yield peer
        finally:
            await peer.close()
