"""Who calls in the walk: a client behind a proxy, and somebody who sees what is so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
class Site:
    """A store's server, and how a place on it is reached through a port, with which patience."""

    port: int
    open: Callable[[str, int, float], Store]
    quick_s: float = 0.3  # a patience that is soon at its end


class Lane:
    """A client of either face behind a proxy, and somebody who talks to the server directly."""

    def __init__(self, site: Site, face: str, fault: str, quick_s: float) -> None:
        self.face = face
        self.fault = fault
        place = unique()
        timeout_s = quick_s if fault in LATE else PATIENT_S
        self.direct = site.open(place, site.port, PATIENT_S)
        self.other = Locks(self.direct, owner="other", ttl=LONG_S)
        self.proxy = OneFaultProxy(site.port)
        self._open = partial(site.open, place, self.proxy.port, timeout_s)
        self.locks: Any = None
        self.store: Any = None

    async def connect(self, *, warm: bool) -> None:
        """A new client, with new connections."""
        await self._disconnect()
        store = self._open()
        patience_s = 0.3 if self.fault in REFUSED else 20.0
        make: Any = Locks if self.face == "sync" else aio.Locks
        self.locks = make(store, owner="walker", ttl=TTL_S, store_patience=patience_s)
        self.store = store if self.face == "sync" else store.to_async()
        if warm:
            await self.run(self.store.load, "warm")
            lease = await self.run(self.locks.acquire, unique(), keep=False)
            await self.run(lease.release)

    async def _disconnect(self) -> None:
        if self.locks is not None:
            await self.run(self.locks.close)
            if self.face != "sync":
                await self.store.close()

    async def close(self) -> None:
        """Let go of all."""
        await self._disconnect()
        self.other.close()

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
