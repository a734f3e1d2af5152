"""Results as files in a directory, one for each key."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from holdfast.api.options import Seconds
from holdfast.fencing import files
from holdfast.fencing.gate import Fenced
from holdfast.results.base import Codec, Found, Results, codec_of, seconds_of
from holdfast.stores.blob.names import name_of


class DirectoryResults(Results):
    """Keeps results in a directory that all callers share, one file for each key.

    A file's age is counted from when it was written, by the clocks of the machines that write and
    read it.

    path   the directory; it is created when it is needed
    ttl    how long a result is good; None: for ever
    codec  `json`, `bytes`, or a `Codec` of your own
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ttl: Seconds | None = None,
        codec: str | Codec = "json",
    ) -> None:
        self._path = Path(path)
        self._ttl_s = seconds_of(ttl)
        self._codec = codec_of(codec)

    def find(self, key: str) -> Found | None:
        try:
            with (self._path / name_of(key)).open("rb") as file:
                written_at, raw = os.fstat(file.fileno()).st_mtime, file.read()
        except FileNotFoundError:
            return None
        if self._ttl_s is not None and time.time() - written_at >= self._ttl_s:
            return None
        return Found(self._codec.decode(raw))

    def publish(self, key: str, value: Any, lease: Fenced) -> None:
        files.write(self._path / name_of(key), self._codec.encode(value), lease, key=key)
