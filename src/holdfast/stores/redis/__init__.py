"""The Redis store: one server, a master with its Sentinels, or a cluster; Valkey too."""

from typing import Any

from holdfast.stores.redis.store import RedisStore

__all__ = ["RedisStore", "asyncio_store"]


def asyncio_store(store: RedisStore) -> Any:
    """Returns the asyncio twin of a store. asyncio is imported only when somebody uses it."""
    from holdfast.stores.redis.store_async import AsyncRedisStore

    return AsyncRedisStore(store)
