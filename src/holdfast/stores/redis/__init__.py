"""Locks in Redis or Valkey: one server, Sentinel, or Cluster."""

from holdfast.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
