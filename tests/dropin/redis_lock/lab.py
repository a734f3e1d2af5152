"""One way to call four kinds of lock: redis-py's and ours, blocking and asyncio."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any, Literal

import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

from holdfast.dropin.redis_lock import Lock
from holdfast.dropin.redis_lock.asyncio import Lock as AsyncLock

Whose = Literal["theirs", "ours"]
Face = Literal["sync", "async"]

CLASSES: dict[tuple[str, str], Any] = {
    ("theirs", "sync"): redis.lock.Lock,
    ("theirs", "async"): redis.asyncio.lock.Lock,
    ("ours", "sync"): Lock,
    ("ours", "async"): AsyncLock,
}


class Lab:
    """A client of one face, the locks of one kind, and a second client to look with."""

    def __init__(self, port: int, whose: Whose, face: Face, **options: Any) -> None:
        self.whose = whose
        self.face = face
        self.raw = redis.Redis(port=port)
        self._runner = asyncio.Runner()
        self._options = options
        self.client = self.new_client(port)

    def new_client(self, port: int, **options: Any) -> Any:
        """A client of this lab's face."""
        kind = redis.Redis if self.face == "sync" else redis.asyncio.Redis
        return kind(port=port, **{**self._options, **options})

    def lock(self, name: Any = "foo", *, client: Any = None, **options: Any) -> Any:
        """A lock as an application gets it."""
        own = {key: options.pop(key) for key in ("keep", "push") if key in options}
        lock_class = CLASSES[self.whose, self.face]
        if own:
            lock_class = partial(lock_class, **own)
        return (client or self.client).lock(name, lock_class=lock_class, **options)

    def do(self, outcome: Any) -> Any:
        """The outcome of a call, awaited if need be."""
        if not inspect.isawaitable(outcome):
            return outcome

        async def wait() -> Any:
            return await outcome

        return self._runner.run(wait())

    def hold(self, lock: Any, body: Any = lambda: None) -> Any:
        """Run something in the lock's `with` block."""
        if self.face == "sync":
            with lock as entered:
                body()
                return entered

        async def run() -> Any:
            async with lock as entered:
                body()
                return entered

        return self._runner.run(run())

    def close(self) -> None:
        """Let go of everything."""
        self.raw.close()
        self.do(self.client.close() if self.face == "sync" else self.client.aclose())
        self._runner.close()
