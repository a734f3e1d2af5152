"""The asyncio lock of the drop-in: `client.lock("name", lock_class=Lock)`, awaited."""

from holdfast.dropin.redis_lock.lock_async import Lock

__all__ = ["Lock"]
