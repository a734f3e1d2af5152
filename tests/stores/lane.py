"""Who calls in the walk: a client behind a proxy, and somebody who sees what is so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from holdfast import Locks, aio
from holdfast.core.contract import Entry
from holdfast.stores.base import Store
from tests.engines.one_fault import OneFaultProxy
from tests.helpers import unique

TTL_S = 6.0  # of whatever a failed call may leave behind; long enough for a busy machine
LONG_S = 300.0  # of what others hold meanwhile
PATIENT_S = 30.0  # a time-out that only a server which never answers can exceed
REFUSED = ("refused", "refused after")
LATE = ("late reply", "late request")


@dataclass(frozen=True)
class Direct:
    """Somebody who talks to the server directly: what is so, and what others do meanwhile."""

    store: Store
    other: Locks


@dataclass(frozen=True)
class Site:
    """A store's server, and how a place on it is reached through a port, with which patience."""

    port: int
    open: Callable[[str, int, float], Store]
    quick_s: float = 0.3  # a patience that is soon at its end
    lists_all: bool = False  # a listing looks at all that is in the place

    @contextmanager
    def look(self, place: str) -> Iterator[Direct]:
        """A place without anything in between."""
        store = self.open(place, self.port, PATIENT_S)
        with Locks(store, owner="other", ttl=LONG_S) as other:
            yield Direct(store, other)


class Lane:
    """A client of either face behind a proxy, and somebody who talks to the server directly."""

    def __init__(
        self, direct: Direct, open_through: Callable[[int], Store], face: str, fault: str, port: int
    ) -> None:
        self.face = face
        self.fault = fault
        self.direct = direct.store
        self.other = direct.other
        self.proxy = OneFaultProxy(port)
        self._open = open_through
        self.locks: Any = None
        self.store: Any = None

    async def connect(self, *, warm: bool) -> None:
        """A new client, with new connections."""
        await self._disconnect()
        store = self._open(self.proxy.port)
        patience_s = 0.1 if self.fault in REFUSED else 20.0
        make: Any = Locks if self.face == "sync" else aio.Locks
        self.locks = make(store, owner="walker", ttl=TTL_S, store_patience=patience_s)
        # The client's own, so that both have the same connections.
        self.store = store if self.face == "sync" else self.locks._client.driver.store_here()
        if warm:
            await self.run(self.store.load, "warm")
            lease = await self.run(self.locks.acquire, unique(), keep=False)
            await self.run(lease.release)

    async def _disconnect(self) -> None:
        if self.locks is not None:
            await self.run(self.locks.close)

    async def __aenter__(self) -> Self:
        self.proxy.__enter__()
        await self.connect(warm=True)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._disconnect()
        self.proxy.__exit__()

    async def run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of either face."""
        if self.face == "sync":
            return await asyncio.to_thread(call, *arguments, **options)
        answer = call(*arguments, **options)
        if hasattr(answer, "__aiter__"):
            return [one async for one in answer]
        return await answer if inspect.isawaitable(answer) else answer

    def look(self, keys: Sequence[str]) -> dict[str, Entry]:
        """What is in the store."""
        return {key: self.direct.load(key) for key in keys}


class Lanes:
    """Those of one event loop. They are used again where that can be."""

    def __init__(self, site: Site, face: str, fault: str, direct: Direct, place: str) -> None:
        self._site = site
        self._face = face
        self._fault = fault
        self._direct = direct
        self._place = place
        self._kept: dict[float, Lane] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def lane(self, timeout_s: float, *, lists: bool) -> AsyncIterator[Lane]:
        """One whose client has this patience."""
        if lists and self._site.lists_all:
            place = unique()
            with self._site.look(place) as direct:
                async with self._new(direct, place, timeout_s) as fresh:
                    yield fresh
        else:
            lane = self._kept.pop(timeout_s, None)
            if lane is None:
                new = self._new(self._direct, self._place, timeout_s)
                lane = await self._stack.enter_async_context(new)
            yield lane
            self._kept[timeout_s] = lane  # if all went well

    def _new(self, direct: Direct, place: str, timeout_s: float) -> Lane:
        def open_through(port: int) -> Store:
            return self._site.open(place, port, timeout_s)

        return Lane(direct, open_through, self._face, self._fault, self._site.port)
