"""Locks in an SQLite file: the embedded default, shared by the processes of one machine."""

from holdfast.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
