"""The one object that a lease is: read it, and replace it if it is still what was read.

mops and we write it whole, and nobody ever sees half of it. What a swap compares is exact
between all who write like this; mops itself compares nothing (see `acquiring`). The means
are those of the blob stores: conditional writes, or `flock` and rename in a directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl

from msgspec import Struct

from holdfast.errors import BadURL, MissingDriver
from holdfast.stores.blob.folder import Folder
from holdfast.stores.url import StoreURL, parse, redact

LEASE_DIRNAME = "lock"
LEASE_FILE = "lock.json"
FILE_SCHEME = "file://"
ADLS_SCHEME = "adls://"  # mops' own: adls://account/container/path
BUSY_S = 5.0


class Found(Struct, frozen=True):
    """What is there, and its version, which is nothing to anybody but the slot."""

    body: bytes
    version: Any


class Slot(Protocol):
    """Where one object is. May raise the errors of a store."""

    uri: str  # for people
    lease_dir_uri: str  # to open it again, in another process too; may have credentials in it
    compares: bool  # False: between the look and the write of a swap others may write

    def read(self) -> Found | None:
        """What is there now."""

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        """Write if this is still there (None: if nothing is); the new version. None: it is
        not, and nothing was written."""


def join(folder_uri: str, *names: str) -> str:
    """The URI of something in a folder, as mops makes it."""
    if is_path(folder_uri):
        return os.path.join(folder_uri, *names)  # noqa: PTH118 (a URI is not a path)
    place, mark, options = folder_uri.partition("?")
    return "/".join([place.rstrip("/"), *names]) + mark + options


def is_path(uri: str) -> bool:
    """Whether a URI is in this machine's file system; mops takes plain paths for URIs too."""
    return uri.startswith(FILE_SCHEME) or "://" not in uri


def open_slot(lease_dir_uri: str) -> Slot:
    """The slot of the lease in this folder."""
    if not isinstance(lease_dir_uri, str) or not lease_dir_uri.removeprefix(FILE_SCHEME):
        raise BadURL("A lease folder is a URI such as file:///shared/memo/lock.")
    if is_path(lease_dir_uri):
        return FileSlot(lease_dir_uri)
    url = _adls(lease_dir_uri) if lease_dir_uri.startswith(ADLS_SCHEME) else parse(lease_dir_uri)
    try:
        from holdfast.dropin.mops_lock.objects import open_object
    except ImportError as exc:
        raise MissingDriver(
            f"Leases in a bucket need {exc.name}: pip install 'holdfast[blob]'"
        ) from exc
    return open_object(url, lease_dir_uri, redact(join(lease_dir_uri, LEASE_FILE)))


def _adls(uri: str) -> StoreURL:
    """mops takes the path as it is, without signs such as %20 in it."""
    place, _, options = uri.removeprefix(ADLS_SCHEME).partition("?")
    account, _, rest = place.partition("/")
    container, _, path = rest.partition("/")
    if not account or not container:
        raise BadURL("A lease folder of mops on Azure is adls://account/container/path.")
    given = dict(parse_qsl(options))
    return StoreURL("az", uri, host=account, user=container, path=path, options=given)


class FileSlot:
    """A file in a folder, which is made when it is needed."""

    compares = True

    def __init__(self, lease_dir_uri: str) -> None:
        self.uri = join(lease_dir_uri, LEASE_FILE)
        self._path = Path(lease_dir_uri.removeprefix(FILE_SCHEME)).expanduser().resolve()
        self.lease_dir_uri = str(self._path)
        self._folder = Folder(self._path, BUSY_S, locks=1)

    def read(self) -> Found | None:
        body = self._folder.read(LEASE_FILE) if self._is_there() else None
        return None if body is None else Found(body, body)

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        if not self._is_there():
            self._folder.create(parents=True)
        with self._folder.locked(LEASE_FILE):
            if self._folder.read(LEASE_FILE) != version:
                return None
            self._folder.put(os.urandom(8).hex(), LEASE_FILE, body)
        return body

    def _is_there(self) -> bool:
        try:
            return self._path.is_dir()
        except OSError as exc:
            raise self._folder.trouble(exc) from exc
