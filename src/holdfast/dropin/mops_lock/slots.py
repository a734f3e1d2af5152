"""The one object that a lease is: read it, and replace it if it is still what was read.

mops and we write it whole, and nobody ever sees half of it. What a swap compares is exact
between all who write like this; mops itself compares nothing (see `acquiring`).
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from holdfast.errors import BadURL, Misconfigured, OutcomeUnknown

LEASE_DIRNAME = "lock"
LEASE_FILE = "lock.json"
FILE_SCHEME = "file://"


class Found(Struct, frozen=True):
    """What is there, and its version, which is nothing to anybody but the slot."""

    body: bytes
    version: Any


class Slot(Protocol):
    """Where one object is. May raise the errors of a store."""

    uri: str

    def read(self) -> Found | None:
        """What is there now."""

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        """Write if this is still there (None: if nothing is); the new version. None: it is
        not, and nothing was written."""


def join(folder_uri: str, *names: str) -> str:
    """The URI of something in a folder, as mops makes it."""
    if is_path(folder_uri):
        return os.path.join(folder_uri, *names)  # noqa: PTH118 (a URI is not a path)
    return "/".join([folder_uri.rstrip("/"), *names])


def is_path(uri: str) -> bool:
    """Whether a URI is in this machine's file system; mops takes plain paths for URIs too."""
    return uri.startswith(FILE_SCHEME) or "://" not in uri


def open_slot(lease_dir_uri: str) -> Slot:
    """The slot of the lease in this folder."""
    if not isinstance(lease_dir_uri, str) or not lease_dir_uri.removeprefix(FILE_SCHEME):
        raise BadURL("A lease folder is a URI such as file:///shared/memo/lock.")
    uri = join(lease_dir_uri, LEASE_FILE)
    if is_path(uri):
        return FileSlot(uri)
    raise BadURL(f"Leases of mops cannot be kept at {lease_dir_uri!r}: use a file:// URI.")


class FileSlot:
    """A file in a folder.

    A swap is done under a lock of the operating system on a second file, `.lock.json.swap`:
    look, compare, and rename over it. The system lets go of that lock when a process dies.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._path = Path(uri.removeprefix(FILE_SCHEME)).expanduser().resolve()

    def read(self) -> Found | None:
        with self._errors():
            try:
                body = self._path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return Found(body, body)

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        with self._errors():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():
                found = self.read()
                if (found and found.version) != version:
                    return None
                self._replace(body)
        return body

    def _replace(self, body: bytes) -> None:
        fd, draft = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(body)
            Path(draft).chmod(0o666 & ~_umask())
            Path(draft).replace(self._path)
        except BaseException:
            with suppress(OSError):
                Path(draft).unlink()
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        guard = self._path.with_name(f".{self._path.name}.swap")
        fd = os.open(guard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            kind = Misconfigured if isinstance(exc, PermissionError) else OutcomeUnknown
            raise kind(f"The lease at {self.uri} cannot be used: {exc.strerror}.") from exc


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
