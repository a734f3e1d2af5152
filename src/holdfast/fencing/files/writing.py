"""Files that are replaced as a whole, with the fence of their last writer in a file beside.

    directory/report.csv                          what the application has
    directory/.holdfast/fence-report.csv.json     the key and the fence of who wrote it last
    directory/.holdfast/lock-…                    locked while fences are compared and files renamed

The content is written to a file beside first. Then, under a lock that the system drops when a
process dies, fences are compared, the new one is noted, and the file is renamed into place. A
process that is stopped within these few calls holds up the others, for as long as `BUSY_S`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.errors import CorruptRecord, UsageError
from holdfast.fencing.gate import Fence, Fenced, check_admitted, check_same_key, fence_of
from holdfast.stores.blob.names import name_of
from holdfast.stores.directory.folder import OURS, Folder

BUSY_S = 10.0
LOCKS = 8

_decoder = msgspec.json.Decoder(Fence)


def write(
    path: str | os.PathLike[str],
    data: bytes | str,
    lease: Fenced,
    *,
    key: str | None = None,
    fsync: bool = False,
) -> None:
    """Replace a file, unless a later holder has written it. Readers see the old or the new one.

    `fsync=True` makes it survive a power cut.
    """
    fence = fence_of(lease, key)
    raw = data.encode() if isinstance(data, str) else bytes(data)
    guarded = _Guarded(Path(path), fsync=fsync)
    new = guarded.folder.prepare(os.urandom(8).hex(), raw)
    try:
        guarded.put(new, fence)
    except BaseException:
        with suppress(OSError):
            Path(new).unlink(missing_ok=True)
        raise


def replace(
    new: str | os.PathLike[str],
    path: str | os.PathLike[str],
    lease: Fenced,
    *,
    key: str | None = None,
    fsync: bool = False,
) -> None:
    """Rename a file into place, as `os.replace` does, unless a later holder has written it.

    Both must be on one file system.
    """
    fence = fence_of(lease, key)
    if not Path(new).is_file():
        raise UsageError(f"{os.fspath(new)} is not a file that could be put into place.")
    _Guarded(Path(path), fsync=fsync).put(os.fspath(new), fence)


def remove(
    path: str | os.PathLike[str], lease: Fenced, *, key: str | None = None, fsync: bool = False
) -> None:
    """Remove a file, unless a later holder has written it. Its fence is remembered."""
    fence = fence_of(lease, key)
    guarded = _Guarded(Path(path), fsync=fsync)
    guarded.when_admitted(fence, lambda: guarded.folder.remove(guarded.name))


class _Guarded:
    """A file with its gate."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        if path.name in ("", "..", OURS) or path.parent.name == OURS:
            raise UsageError(f"{path} does not name a file.")
        self.name = path.name
        self._gate = f"{OURS}/fence-{name_of(path.name)}"
        self.folder = Folder(path.parent, BUSY_S, fsync=fsync, locks=LOCKS)
        self.folder.create(parents=True)

    def put(self, new: str, fence: Fence) -> None:
        """Rename a file into place, if its writer is admitted."""
        self.when_admitted(fence, lambda: self.folder.place(new, self.name))

    def when_admitted(self, fence: Fence, write: Callable[[], None]) -> None:
        """Write, if the writer is admitted, while nobody else does."""

        def admit_and_write() -> None:
            self._admit(fence)
            write()

        self.folder.when_locked(self.name, admit_and_write)

    def _admit(self, fence: Fence) -> None:
        raw = self.folder.read(self._gate)
        if raw is not None:
            found = self._decode(raw)
            check_same_key(fence, found.key)
            check_admitted(fence, found.fence)
            if found == fence:
                return
        self.folder.put(os.urandom(8).hex(), self._gate, msgspec.json.encode(fence))

    def _decode(self, raw: bytes) -> Fence:
        try:
            return _decoder.decode(raw)
        except msgspec.MsgspecError as exc:
            raise CorruptRecord(
                f"{self.folder.path / self._gate} cannot be read, and nobody can tell who has "
                f"written {self.name} last: nothing was written. Remove that file when no old "
                f"holder is left."
            ) from exc
