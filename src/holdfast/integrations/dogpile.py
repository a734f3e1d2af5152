"""A mutex for dogpile.cache: one process makes a value, on whatever machine, and the others wait.

from dogpile.cache import make_region
from holdfast.integrations.dogpile import HoldfastProxy

region = make_region().configure(
    "dogpile.cache.redis",
    expiration_time=3600,
    arguments={"host": "cache"},
    wrap=[HoldfastProxy(holdfast.connect("redis://cache:6379/3"), ttl=30)],
)
"""

from __future__ import annotations

import hashlib
from typing import Any

from holdfast.api.locks import Locks
from holdfast.api.options import Seconds
from holdfast.errors import Busy
from holdfast.extras import needed
from holdfast.integrations.held import HeldLeases

with needed("holdfast.integrations.dogpile", "dogpile"):
    from dogpile.cache.api import CacheMutex
    from dogpile.cache.proxy import ProxyBackend

__all__ = ["HoldfastProxy", "Mutex"]


class HoldfastProxy(ProxyBackend):
    """Values of the backend are made under Holdfast's locks, not under the backend's own mutex.

    locks     the client, as `holdfast.connect()` makes it
    prefix    before the cache's keys: regions that share keys, but not values, need different ones
    ttl       how long a process that died while it made a value keeps the others waiting
    timeout   how long to wait for a value that another process makes, before `AcquireTimeout`;
              None: until it is there
    """

    def __init__(
        self,
        locks: Locks,
        *,
        prefix: str = "dogpile:",
        ttl: Seconds | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        self._locks = locks
        self._prefix = prefix
        self._options: dict[str, Any] = {"ttl": ttl, "timeout": timeout}

    def get_mutex(self, key: str) -> CacheMutex:
        """Returns the mutex for a key of the cache."""
        return Mutex(self._locks, self._name(key), **self._options)

    def _name(self, key: str) -> str:
        """Returns the name of the lock. Keys of a cache may be longer than those of a lock."""
        name = self._prefix + key
        if len(name.encode()) <= self._locks.facts.max_key_bytes:
            return name
        return f"{self._prefix}sha256:{hashlib.sha256(key.encode()).hexdigest()}"


class Mutex(CacheMutex):
    """The lock around the making of one value. Threads share it, and dogpile's runners for the
    background release it in a thread other than the one that acquired it."""

    def __init__(
        self,
        locks: Locks,
        key: str,
        *,
        ttl: Seconds | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        self._locks = locks
        self._key = key
        self._ttl = ttl
        self._timeout = timeout
        self._held = HeldLeases()

    def acquire(self, wait: bool = True) -> bool:
        """Acquire the lock. Returns False if it is taken and `wait` is False.

        A timeout raises, because dogpile ignores what a mutex that waited returns.
        """
        try:
            timeout = self._timeout if wait else 0
            self._held.add(self._locks.acquire(self._key, ttl=self._ttl, timeout=timeout))
        except Busy:
            if wait:
                raise
            return False
        return True

    def release(self) -> None:
        """Give the lock back. Trouble of the store goes to the log, because the value is made."""
        lease = self._held.take()
        if lease is not None:
            lease._leave()

    def locked(self) -> bool:
        """Whether anybody makes the value now, here or elsewhere."""
        return not self._locks.show(self._key).free
