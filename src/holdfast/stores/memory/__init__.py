"""Locks inside one process."""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
