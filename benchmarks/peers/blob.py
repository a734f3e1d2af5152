"""Blobs: in a directory, and in Azure's emulator Azurite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

from benchmarks.peers.base import TTL_S, Peer
from benchmarks.peers.floors import RECORD, Floor
from benchmarks.sites import Place

EXPIRE = timedelta(seconds=TTL_S)


def _container(place: Place) -> Any:
    """Azurite's, for obstore."""
    engine = import_module("tests.engines.azurite")
    return import_module("obstore.store").AzureStore(
        "locks",
        account_name=engine.ACCOUNT,
        account_key=engine.ACCOUNT_KEY,
        endpoint=f"http://127.0.0.1:{place.port}/{engine.ACCOUNT}",
        client_options={"allow_http": True},
    )


class Mops(Peer):
    """A lease that is written to a blob and then looked at, whether it stayed; best effort."""

    stores = ("file",)
    name = "thds.mops lease"
    package = "thds.mops"
    modules = ("thds.mops.pure.core.lease",)
    prominent = False
    heavy = True

    def __init__(self, place: Place) -> None:
        self._lease = import_module("thds.mops.pure.core.lease")
        self._root = f"file://{place.folder}/mops"

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        lease = self._lease.acquire(f"{self._root}/{key}", expire=EXPIRE, block=None)
        try:
            yield
        finally:
            lease.release()


class MopsOnAzurite(Mops):
    """The same algorithm. Its own client speaks the Data Lake's API, which Azurite does not
    have, so it is given one of a few lines, on the same obstore as ours."""

    stores = ("az",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._root = "azurite://mops"
        self._store, self._obstore = _container(place), import_module("obstore")
        register = import_module("thds.mops.pure.core.uris").register_blob_store
        register(lambda uri: self if uri.startswith(self._root) else None)

    def readbytesinto(self, uri: str, stream: Any, *, type_hint: str = "") -> None:
        """What mops calls to read."""
        stream.write(bytes(self._obstore.get(self._store, _path(uri)).bytes()))

    def putbytes(self, uri: str, data: Any, *, type_hint: str = "") -> None:
        """What it calls to write."""
        self._obstore.put(self._store, _path(uri), data)

    def join(self, *parts: str) -> str:
        """A path."""
        return "/".join(part.strip("/") for part in parts)

    def is_blob_not_found(self, exc: Exception) -> bool:
        """As the name says."""
        return isinstance(exc, FileNotFoundError)


def _path(uri: str) -> str:
    return uri.partition("://")[2]


class BareBlob(Floor):
    """obstore, with a condition on the ETag."""

    stores = ("az",)
    name = "bare PUT, PUT"
    package = "obstore"

    def __init__(self, place: Place) -> None:
        self._put = import_module("obstore").put
        self._store = _container(place)
        self._tag = self._put(self._store, "bare", RECORD.encode())["e_tag"]

    def take(self) -> None:
        mode = {"e_tag": self._tag}
        self._tag = self._put(self._store, "bare", RECORD.encode(), mode=mode)["e_tag"]

    free = take
