"""Redis: redis-py's own lock, and the libraries around it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.base import TTL_S, AsyncPeer, Peer
from benchmarks.sites import Place


class OnRedis(Peer):
    """Whoever works with a redis-py client."""

    stores = ("redis",)

    def __init__(self, place: Place) -> None:
        self._client: Any = import_module("redis").Redis(port=place.port)

    def close(self) -> None:
        self._client.close()


class RedisPy(OnRedis):
    """`client.lock()`."""

    name = "redis-py Lock"
    package = "redis"
    modules = ("redis",)

    def lock(self, key: str) -> Any:
        return self._client.lock(key, timeout=TTL_S)


class PythonRedisLock(OnRedis):
    """Waits with BLPOP."""

    name = "python-redis-lock"
    package = "python-redis-lock"
    modules = ("redis_lock",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("redis_lock")

    def lock(self, key: str) -> Any:
        return self._module.Lock(self._client, key, expire=TTL_S)


class Pottery(OnRedis):
    """Redlock, here with one master."""

    name = "pottery Redlock"
    package = "pottery"
    modules = ("pottery",)
    prominent = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("pottery")

    def lock(self, key: str) -> Any:
        return self._module.Redlock(key=key, masters={self._client}, auto_release_time=TTL_S)


class Sherlock(OnRedis):
    """`sherlock.RedisLock`."""

    name = "sherlock RedisLock"
    package = "sherlock"
    modules = ("sherlock",)
    prominent = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("sherlock")

    def lock(self, key: str) -> Any:
        return self._module.RedisLock(key, client=self._client, expire=TTL_S, timeout=60)


class OnRedisAsyncio(AsyncPeer):
    """Whoever works with redis-py's asyncio client."""

    stores = ("redis",)

    def __init__(self, place: Place) -> None:
        self._port = place.port

    async def open(self) -> None:
        self._client: Any = import_module("redis.asyncio").Redis(
            port=self._port, max_connections=1000
        )

    async def close(self) -> None:
        await self._client.aclose()


class RedisPyAsyncio(OnRedisAsyncio):
    """`client.lock()` of `redis.asyncio`."""

    name = "redis.asyncio Lock"
    package = "redis"

    def lock(self, key: str) -> Any:
        return self._client.lock(key, timeout=TTL_S)


class PotteryAsyncio(OnRedisAsyncio):
    """`pottery.AIORedlock`."""

    name = "pottery AIORedlock"
    package = "pottery"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._module = import_module("pottery")

    def lock(self, key: str) -> Any:
        return self._module.AIORedlock(key=key, masters={self._client}, auto_release_time=TTL_S)
