"""The file that a lease is: read it, and replace it if it is still what was read.

mops and we replace the file as a whole, so nobody ever sees half of it. Between clients that swap
like this the comparison is exact; mops itself compares nothing (see `acquiring`). In a bucket a
swap is a conditional write, in a directory a rename under an `flock`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl

from msgspec import Struct

from holdfast.errors import BadURL
from holdfast.extras import needed
from holdfast.stores.directory.folder import Folder
from holdfast.stores.url import StoreURL, parse, redact

LEASE_DIRNAME = "lock"
LEASE_FILE = "lock.json"
FILE_SCHEME = "file://"
ADLS_SCHEME = "adls://"  # mops' own: adls://account/container/path
BUSY_S = 5.0


class Found(Struct, frozen=True):
    """What is in the file, and its version, which only the `LeaseFile` understands."""

    body: bytes
    version: Any


class LeaseFile(Protocol):
    """The file of one lease. Its methods raise the errors of a store."""

    uri: str  # for people
    lease_dir_uri: str  # to open it again, in another process too; may have credentials in it
    compares: bool  # False: between the look and the write of a swap others may write

    def read(self) -> Found | None:
        """Returns what is there now; None if there is no file."""

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        """Write if this version is still there (None: if there is no file). Returns the new
        version; None if another version is there, and nothing was written."""


def join(folder_uri: str, *names: str) -> str:
    """Returns the URI of something in a folder, as mops builds it."""
    if is_path(folder_uri):
        return os.path.join(folder_uri, *names)  # noqa: PTH118 (a URI is not a path)
    place, mark, options = folder_uri.partition("?")
    return "/".join([place.rstrip("/"), *names]) + mark + options


def is_path(uri: str) -> bool:
    """Whether a URI names a path in the file system. mops accepts plain paths too."""
    return uri.startswith(FILE_SCHEME) or "://" not in uri


def open_lease_file(lease_dir_uri: str) -> LeaseFile:
    """Returns the file of the lease in this folder."""
    if not isinstance(lease_dir_uri, str) or not lease_dir_uri.removeprefix(FILE_SCHEME):
        raise BadURL("A lease folder is a URI such as file:///shared/memo/lock.")
    if is_path(lease_dir_uri):
        return FolderLeaseFile(lease_dir_uri)
    url = _adls(lease_dir_uri) if lease_dir_uri.startswith(ADLS_SCHEME) else parse(lease_dir_uri)
    with needed("A lease in a bucket", "blob"):
        from holdfast.dropin.mops_lock.bucket_file import open_in_bucket
    return open_in_bucket(url, lease_dir_uri, redact(join(lease_dir_uri, LEASE_FILE)))


def _adls(uri: str) -> StoreURL:
    """Returns the parts of a URI of mops' own kind. Its path is not percent-encoded."""
    place, _, options = uri.removeprefix(ADLS_SCHEME).partition("?")
    account, _, rest = place.partition("/")
    container, _, path = rest.partition("/")
    if not account or not container:
        raise BadURL("A lease folder of mops on Azure is adls://account/container/path.")
    given = dict(parse_qsl(options))
    return StoreURL("az", uri, host=account, user=container, path=path, options=given)


class FolderLeaseFile:
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

        def compare_and_replace() -> bytes | None:
            if self._folder.read(LEASE_FILE) != version:
                return None
            self._folder.put(os.urandom(8).hex(), LEASE_FILE, body)
            return body

        return self._folder.when_locked(LEASE_FILE, compare_and_replace)

    def _is_there(self) -> bool:
        try:
            return self._path.is_dir()
        except OSError as exc:
            raise self._folder.trouble(exc) from exc
