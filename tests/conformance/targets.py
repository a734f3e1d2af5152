"""The stores under test. A store that is built in and missing here fails a test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from holdfast.testing.conformance import Target
from tests.conformance.sql_targets import mysql_target, postgres_target


class MemoryTarget(Target):
    """A store in this process."""

    def __init__(self, folder: Path) -> None:
        self._name = uuid4().hex

    def open(self) -> Store:
        return open_store(f"memory://{self._name}")

    def corrupt(self, key: str) -> None:
        store = self.open()
        rows = store._rows  # type: ignore[attr-defined]
        rows[key] = b'{"v": 1, "fence": "no"}', rows[key][1]


class SQLiteTarget(Target):
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks.db"

    def open(self) -> Store:
        return open_store(f"sqlite://{self._path}")

    def corrupt(self, key: str) -> None:
        connection = sqlite3.connect(self._path)
        connection.execute("UPDATE holdfast_locks SET record = '{]' WHERE key = ?", (key,))
        connection.commit()
        connection.close()


TARGETS: dict[str, Callable[[Path], Target]] = {
    "memory": MemoryTarget,
    "mysql": mysql_target,
    "postgresql": postgres_target,
    "sqlite": SQLiteTarget,
}
