"""What a case works with: clients of one store through one face, with awaited names."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal
from uuid import uuid4

import holdfast
from holdfast import aio
from holdfast.api import locks as sync
from holdfast.core.contract import Facts
from holdfast.core.records import SECOND
from holdfast.stores.base import Store
from holdfast.testing.faults import FaultyStore

Face = Literal["sync", "async"]
FACES: tuple[Face, ...] = ("sync", "async")

Case = Callable[["World"], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case under its name."""
    name = function.__name__
    assert name not in CASES, f"two cases are called {name}"
    CASES[name] = function
    return function


class Target(ABC):
    """The store under test."""

    # A ttl that is short, and still long enough for this store's clock and latency.
    ttl: float = 1.0

    @abstractmethod
    def open(self) -> Store:
        """A new client of the same data."""

    def overwrite(self, key: str, text: str) -> None:
        """Put this text in the place of the record that is stored under a key, past the store."""
        raise NotImplementedError("Give the target a way to overwrite a record with a text.")

    def corrupt(self, key: str) -> None:
        """Overwrite what is stored under a key with something that is no record."""
        self.overwrite(key, '{"v": 1, "fence": "no"}')


class World:
    """One store, one face, and keys that nobody else uses."""

    def __init__(self, target: Target, face: Face) -> None:
        self.target = target
        self.face = face
        self.ttl = target.ttl
        self.run = uuid4().hex[:12]
        self._pool = ThreadPoolExecutor(64, "case")
        self._opened: list[Any] = []

    @property
    def facts(self) -> Facts:
        """The facts of the store under test."""
        return self.store().facts

    def key(self, name: str = "k") -> str:
        """A key of this run."""
        return f"{self.run}/{name}"

    def store(self) -> Store:
        """A blocking store, opened anew."""
        store = self.target.open()
        self._opened.append(store.close)
        return store

    def raw(self) -> Any:
        """A store through this world's face, awaited."""
        if self.face == "sync":
            return self._awaited(self.store())
        store = self.target.open().to_async()
        self._opened.append(store.close)
        return store

    def locks(self, owner: str = "a", **options: Any) -> Any:
        """A client through this world's face, awaited."""
        return self.locks_on(self.target.open(), owner, **options)

    def faulty(self, owner: str = "a", **options: Any) -> tuple[Any, FaultyStore]:
        """A client whose store fails on cue, and that store."""
        store = FaultyStore(self.target.open())
        return self.locks_on(store, owner, **options), store

    def locks_on(self, store: Store, owner: str = "a", **options: Any) -> Any:
        """A client on an open store."""
        options.setdefault("ttl", self.ttl)
        face = sync if self.face == "sync" else aio
        locks: Any = face.Locks(store, owner=owner, **options)
        self._opened.append(locks.close)
        return self._awaited(locks) if self.face == "sync" else locks

    async def until(self, condition: Callable[[], Any], seconds: float = 10.0) -> None:
        """Wait until something is true."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for the store and for everyone."""
        await asyncio.sleep(seconds)

    async def expire(self) -> None:
        """Let a lease of this world's ttl run out, with the store's doubt on top: when it was
        written and when it is looked at. A first request also connects, and a lease that was
        written right after it lasts longer by as much: nobody knows when the clock was read."""
        await self.pass_time(self.ttl * 1.1 + 2 * self.facts.clock_doubt / SECOND + 0.4)

    async def close(self) -> None:
        """Close whatever a case has opened."""
        for close in reversed(self._opened):
            closing = close()
            if inspect.isawaitable(closing):
                await closing
        self._pool.shutdown(wait=False)

    def _awaited(self, thing: Any) -> Any:
        return Awaited(thing, self._pool)


class Awaited:
    """A blocking object whose calls are awaited: each one runs in a thread."""

    def __init__(self, thing: Any, pool: ThreadPoolExecutor) -> None:
        self._thing = thing
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if not inspect.ismethod(value) or name in _NEVER_BLOCK:
            return value
        if inspect.isgeneratorfunction(value):
            return partial(self._stream, value)
        return partial(self._call, value)

    def __getitem__(self, which: Any) -> Any:
        return _wrap(self._thing[which], self._pool)

    def __iter__(self) -> Any:
        return (_wrap(item, self._pool) for item in self._thing)

    async def __aenter__(self) -> Awaited:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._call(self._thing.__exit__, *exc)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaiting:
        return Awaiting(self._pool, partial(method, *args, **kwargs))

    async def _stream(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        items = await Awaiting(self._pool, lambda: list(method(*args, **kwargs)))
        for item in items:
            yield item


class Awaiting:
    """A call that has not been made yet: await it, or enter what it returns."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[[], Any]) -> None:
        self._pool = pool
        self._call = call

    def __await__(self) -> Any:
        return self._run().__await__()

    async def __aenter__(self) -> Any:
        self._got = await self._run()
        return self._got

    async def __aexit__(self, *exc: Any) -> None:
        await self._got.__aexit__(*exc)

    async def _run(self) -> Any:
        loop = asyncio.get_running_loop()
        return _wrap(await loop.run_in_executor(self._pool, self._call), self._pool)


_NEVER_BLOCK = {"share", "remaining", "check", "on_lost", "on_danger", "on_wanted", "guard"}


def _wrap(value: Any, pool: ThreadPoolExecutor) -> Any:
    return Awaited(value, pool) if isinstance(value, (holdfast.Lease, holdfast.Leases)) else value


def run_case(name: str, target: Target, face: Face) -> None:
    """Run one case on one store through one face."""

    async def run() -> None:
        world = World(target, face)
        try:
            await CASES[name](world)
        finally:
            await world.close()

    asyncio.run(run())
