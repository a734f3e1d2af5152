"""The stores under test. A store that is built in and missing here fails a test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.stores.base import Store
from holdfast.stores.redis.protocol import slot_of
from holdfast.stores.redis.record_text import Names
from holdfast.stores.registry import open_store
from holdfast.testing.conformance import Target
from tests.conformance.blob_targets import DirectoryTarget, azure_target, gcs_target, s3_target
from tests.conformance.dynamodb_targets import DynamoDBTarget, MotoTarget, OldDynamoDBTarget
from tests.conformance.given_targets import given_targets
from tests.conformance.sql_targets import mysql_target, postgres_target
from tests.engines.redis import RedisCluster, RedisServer, SentinelSetup, ValkeyServer, client
from tests.engines.shared import shared


class MemoryTarget(Target):
    """A store in this process."""

    def __init__(self, folder: Path) -> None:
        self._name = uuid4().hex

    def open(self) -> Store:
        return open_store(f"memory://{self._name}")

    def overwrite(self, key: str, text: str) -> None:
        store = self.open()
        rows = store._rows  # type: ignore[attr-defined]
        rows[key] = text.encode(), rows[key][1]


class SQLiteTarget(Target):
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks.db"

    def open(self) -> Store:
        return open_store(f"sqlite://{self._path}")

    def overwrite(self, key: str, text: str) -> None:
        connection = sqlite3.connect(self._path)
        connection.execute("UPDATE holdfast_locks SET record = ? WHERE key = ?", (text, key))
        connection.commit()
        connection.close()


class RedisTarget(Target):
    """One server, shared by all cases of a run."""

    # Short, to keep the run short; at a load of 10 a beat may come half a second late.
    ttl = 1.4
    kind: type[Any] = RedisServer

    def __init__(self, folder: Path) -> None:
        self._topology = shared(self.kind)

    def open(self) -> Store:
        return open_store(self._topology.url)

    def overwrite(self, key: str, text: str) -> None:
        with client(self._port(key)) as redis:
            redis.set(self._name(key), text)

    def _name(self, key: str) -> bytes:
        return Names("holdfast").record(key)

    def _port(self, key: str) -> int:
        port: int = self._topology.port
        return port


class ValkeyTarget(RedisTarget):
    """The same on Valkey."""

    kind = ValkeyServer


class SentinelTarget(RedisTarget):
    """A master with a replica and three Sentinels."""

    kind = SentinelSetup

    def _port(self, key: str) -> int:
        port: int = self._topology.master.port
        return port


class ClusterTarget(RedisTarget):
    """Three masters."""

    kind = RedisCluster

    def _port(self, key: str) -> int:
        with client(self._topology.nodes[0].port) as redis:
            slots = redis.execute_command("CLUSTER SLOTS")
        slot = slot_of(self._name(key))
        for first, last, master, *_ in slots:
            if first <= slot <= last:
                return int(master[1])
        raise AssertionError("a slot without a master")


TARGETS: dict[str, Callable[[Path], Target]] = {
    "az": azure_target,
    "file": DirectoryTarget,
    "gs": gcs_target,
    "dynamodb": DynamoDBTarget,
    "dynamodb on moto": MotoTarget,
    "dynamodb of 2019": OldDynamoDBTarget,
    "memory": MemoryTarget,
    "mysql": mysql_target,
    "postgresql": postgres_target,
    "s3": s3_target,
    "sqlite": SQLiteTarget,
    "redis": RedisTarget,
    "redis+sentinel": SentinelTarget,
    "redis+cluster": ClusterTarget,
    "valkey": ValkeyTarget,
    **given_targets(),
}
