"""mops on a bucket: what its leases need of a blob store, at the URLs of our own."""

from __future__ import annotations

from typing import Any

import obstore

from holdfast.dropin.mops_lock.lease_file import join
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.registry import open_store
from holdfast.stores.url import parse


class Blobs:
    """Reads and writes without any condition, as mops does everywhere."""

    def join(self, *parts: str) -> str:
        return join(*parts)

    def readbytesinto(self, uri: str, stream: Any, type_hint: str = "") -> None:
        stream.write(bytes(obstore.get(*self._object(uri)).bytes()))

    def putbytes(self, uri: str, data: bytes, type_hint: str = "") -> None:
        obstore.put(*self._object(uri), data)

    def is_blob_not_found(self, exc: Exception) -> bool:
        return isinstance(exc, FileNotFoundError)

    def _object(self, uri: str) -> tuple[Any, str]:
        """The bucket, and the path of an object in it."""
        store = open_store(uri)
        assert isinstance(store, BlobStore)
        return store.bucket.store, parse(uri).path.strip("/")


def register() -> None:
    """mops knows the URLs of Azure and S3 from now on."""
    from thds.mops.pure.core import uris

    blobs: Any = Blobs()
    uris.register_blob_store(lambda uri: blobs if uri.startswith(("az:", "s3:")) else None)
