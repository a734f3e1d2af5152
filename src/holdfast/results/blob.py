"""Results as objects in S3, Azure, Google Cloud or a directory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import obstore

from holdfast.api.options import Seconds
from holdfast.fencing import blob
from holdfast.fencing.gate import Fenced
from holdfast.results.base import Codec, Found, Results, codec_of, seconds_of
from holdfast.stores.blob.names import name_of


class BlobResults(Results):
    """Keeps results in a store of obstore's, one object for each key.

    An object's age is counted from the service's time of writing to this machine's time of
    reading.

    store   obstore's, such as `S3Store("my-bucket")`
    prefix  what the objects' names begin with
    ttl     how long a result is good; None: for ever
    codec   `json`, `bytes`, or a `Codec` of your own
    """

    def __init__(
        self,
        store: Any,
        *,
        prefix: str = "",
        ttl: Seconds | None = None,
        codec: str | Codec = "json",
    ) -> None:
        self._store = store
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self._ttl_s = seconds_of(ttl)
        self._codec = codec_of(codec)

    def find(self, key: str) -> Found | None:
        path = self._prefix + name_of(key)
        try:
            if self._ttl_s is not None and self._age_s(path) >= self._ttl_s:
                return None
            return Found(self._codec.decode(blob.get(self._store, path)))
        except FileNotFoundError:
            return None

    def _age_s(self, path: str) -> float:
        written_at = obstore.head(self._store, path)["last_modified"]
        return (datetime.now(UTC) - written_at).total_seconds()

    def publish(self, key: str, value: Any, lease: Fenced) -> None:
        path = self._prefix + name_of(key)
        blob.put(self._store, path, self._codec.encode(value), lease, key=key)
