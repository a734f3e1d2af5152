"""Files and folders of one machine: what people use where we offer the SQLite store."""

from __future__ import annotations

import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.base import TTL_S, AsyncPeer, Peer
from benchmarks.sites import Place


def _path(place: Place, who: str, key: str) -> Path:
    """A file for a key."""
    folder = Path(place.folder, who)
    folder.mkdir(exist_ok=True)
    return folder / key.replace("/", "-")


class FileLock(Peer):
    """filelock, which polls. A lock object per key is kept, as its users do."""

    stores = ("sqlite",)
    name = "filelock FileLock"
    package = "filelock"
    modules = ("filelock",)

    def __init__(self, place: Place) -> None:
        self._place = place
        self._module = import_module("filelock")
        self._locks: dict[str, Any] = {}

    def lock(self, key: str) -> Any:
        found = self._locks.get(key)
        if found is None:
            found = self._locks[key] = self._module.FileLock(_path(self._place, "filelock", key))
        return found


class FileLockReadWrite(Peer):
    """filelock's readers/writer lock, which is an SQLite file too."""

    stores = ("sqlite",)
    name = "filelock ReadWriteLock"
    package = "filelock"
    modules = ("filelock",)
    shares = True
    prominent = False

    def __init__(self, place: Place) -> None:
        self._place = place
        self._module = import_module("filelock")
        self._mine = threading.local()

    def lock(self, key: str) -> Any:
        return self._lock(key).write_lock()

    def shared(self, key: str) -> Any:
        return self._lock(key).read_lock()

    def _lock(self, key: str) -> Any:
        locks = self._mine.__dict__
        if key not in locks:
            path = _path(self._place, "filelock-rw", f"{key}.db")
            locks[key] = self._module.ReadWriteLock(path, is_singleton=False)
        return locks[key]


class AsyncFileLock(AsyncPeer):
    """`filelock.AsyncFileLock`."""

    stores = ("sqlite",)
    name = "filelock AsyncFileLock"
    package = "filelock"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._module = import_module("filelock")
        self._locks: dict[str, Any] = {}

    def lock(self, key: str) -> Any:
        if key not in self._locks:
            path = _path(self._place, "filelock", key)
            self._locks[key] = self._module.AsyncFileLock(path)
        return self._locks[key]


class Portalocker(Peer):
    """portalocker, which opens the file each time."""

    stores = ("sqlite",)
    name = "portalocker Lock"
    package = "portalocker"
    modules = ("portalocker",)
    shares = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self._module = import_module("portalocker")

    def lock(self, key: str) -> Any:
        return self._lock(key, self._module.LockFlags.EXCLUSIVE)

    def shared(self, key: str) -> Any:
        return self._lock(key, self._module.LockFlags.SHARED)

    def _lock(self, key: str, flag: Any) -> Any:
        path = _path(self._place, "portalocker", key)
        flags = flag | self._module.LockFlags.NON_BLOCKING
        return self._module.Lock(path, timeout=60, flags=flags)


class Sherlock(Peer):
    """`sherlock.FileLock`: a JSON file with an expiry, beside a filelock."""

    stores = ("sqlite",)
    name = "sherlock FileLock"
    package = "sherlock"
    modules = ("sherlock",)
    prominent = False

    def __init__(self, place: Place) -> None:
        self._folder = Path(place.folder, "sherlock")
        self._module = import_module("sherlock")

    def lock(self, key: str) -> Any:
        name = key.replace("/", "-")
        return self._module.FileLock(name, client=self._folder, expire=TTL_S, timeout=60)
