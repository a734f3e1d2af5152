"""What an error of SQLite means to the caller.

| SQLite's code | ours | was it done? |
|---|---|---|
| BUSY, LOCKED, PROTOCOL | Unavailable | no: others kept the file locked |
| READONLY | StoreReadOnly | no |
| FULL | StoreFull | no |
| CANTOPEN, PERM, AUTH | Misconfigured, or Unavailable if the cause may pass | no |
| NOTADB, CORRUPT | ForeignStore | no |
| IOERR of a write | OutcomeUnknown | unknown |
| IOERR of a read | Unavailable | there was nothing to do |
| the connection was closed | Unavailable | no |
| all others | Misconfigured | no |
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from holdfast import errors
from holdfast.stores.shortage import has_room_for, shortage

# PROTOCOL, "locking protocol", means that this process lost the race for the log too often.
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
# The file, its log, the log's index, and their folder while SQLite creates a file in it.
DESCRIPTORS = 4
# SQLite lets the index of its log grow by half of this at a time.
_LITTLE_ROOM = 65536


class FileBusy(errors.Unavailable):
    """Another process is writing to the file."""


_Error = type[errors.HoldfastError]
_OTHER: tuple[_Error, str] = (errors.Misconfigured, "{path}: {exc}")
_MEANINGS: dict[int, tuple[_Error, str]] = {
    **dict.fromkeys(
        BUSY, (FileBusy, "Others kept {path} locked for too long.")
    ),
    sqlite3.SQLITE_READONLY: (
        errors.StoreReadOnly, "{path} cannot be written: check its owner and permissions.",
    ),
    sqlite3.SQLITE_FULL: (
        errors.StoreFull, "{path} cannot grow: the disk is full. Free some space.",
    ),
    sqlite3.SQLITE_NOTADB: (
        errors.ForeignStore, "{path} is not a sound SQLite file ({exc}); it was left alone.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        errors.ForeignStore, "{path} is not a sound SQLite file ({exc}); it was left alone.",
    ),
}  # fmt: skip
_NOT_OPENED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def code_of(exc: sqlite3.Error) -> int:
    """Returns SQLite's primary error code; 0 if the error has none."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def error_for(exc: sqlite3.Error, path: Path, *, writing: bool) -> errors.HoldfastError:
    """Returns our error for one of SQLite's."""
    code = code_of(exc)
    if code in _NOT_OPENED:
        return _not_opened(path, exc)
    if code == sqlite3.SQLITE_IOERR:
        not_known = errors.OutcomeUnknown if writing else errors.Unavailable
        return not_known(f"{path}: {exc}{_why_io_failed(path)}")
    if isinstance(exc, sqlite3.ProgrammingError):
        return errors.Unavailable(f"{path} was closed meanwhile.")
    kind, message = _MEANINGS.get(code, _OTHER)
    return kind(message.format(path=path, exc=exc))


def _why_io_failed(path: Path) -> str:
    """SQLite names no cause; a full disk is the usual one, when it cannot make its log grow."""
    import shutil  # with all kinds of archives: only when it is needed

    try:
        left = shutil.disk_usage(path.parent).free
    except OSError:
        return ""
    return "" if left >= _LITTLE_ROOM else ". The disk is full: free some space."


def _not_opened(path: Path, exc: sqlite3.Error) -> errors.HoldfastError:
    """SQLite does not say why it cannot open a file: look for the cause."""
    if not has_room_for(DESCRIPTORS):
        return shortage(str(path))
    if _can_be_opened(path):
        return errors.Unavailable(f"{path} could not be opened just then ({exc}): try again.")
    return errors.Misconfigured(
        f"{path} cannot be opened ({exc}): it must not be a folder, its folder must "
        f"exist, and both must be yours to write."
    )


def _can_be_opened(path: Path) -> bool:
    """Whether nothing can be seen that would prevent it for good."""
    try:
        real = path.resolve(strict=path.exists())
        there = real.is_file() if real.exists() else real.parent.is_dir()
        ours = (real, real.parent, Path(f"{real}-wal"), Path(f"{real}-shm"))
        return there and all(os.access(one, os.R_OK | os.W_OK) for one in ours if one.exists())
    except (OSError, RuntimeError):  # the name is too long, or its links form a circle
        return False
