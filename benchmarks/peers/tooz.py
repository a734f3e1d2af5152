"""tooz, OpenStack's coordination library, with three of its drivers."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from uuid import uuid4

from benchmarks.peers.base import Peer
from benchmarks.sites import Place


class Tooz(Peer):
    """A coordinator, started as its documentation says."""

    package = "tooz"
    url: str

    def __init__(self, place: Place) -> None:
        url = self.url.format(port=place.port, folder=place.folder)
        member = uuid4().hex.encode()
        self._coordinator: Any = import_module("tooz.coordination").get_coordinator(url, member)
        self._coordinator.start(start_heart=True)

    def lock(self, key: str) -> Any:
        return self._coordinator.get_lock(key.replace("/", "-").encode())

    def close(self) -> None:
        self._coordinator.stop()


class ToozRedis(Tooz):
    """Around redis-py's lock."""

    stores = ("redis",)
    name = "tooz redis"
    url = "redis://127.0.0.1:{port}"
    modules = ("tooz.coordination", "tooz.drivers.redis")
    prominent = False


class ToozFile(Tooz):
    """Around fasteners."""

    stores = ("sqlite",)
    name = "tooz file"
    url = "file://{folder}/tooz"
    modules = ("tooz.coordination", "tooz.drivers.file")


class ToozPostgreSQL(Tooz):
    """An advisory lock in a session of its own, which it opens each time."""

    stores = ("postgresql",)
    name = "tooz PostgreSQL"
    url = "postgresql://postgres@127.0.0.1:{port}?dbname=postgres"
    modules = ("tooz.coordination", "tooz.drivers.pgsql")
