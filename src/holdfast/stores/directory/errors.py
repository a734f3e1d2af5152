"""What an error of the file system means for a lock: not done, or perhaps done.

`MEANINGS` is the table. A call that only looks, or that prepares a file beside the others, has
done nothing when it fails. A rename or a removal is what others see: a file server may have done
it although its answer was an error, or was lost and asked for again.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, EDQUOT, EEXIST, ENOSPC, EPERM, EROFS
from pathlib import Path

from msgspec import Struct

from holdfast import errors
from holdfast.stores.shortage import ADVICE, is_shortage

_NOT_OURS_TO_WRITE = {EACCES, EPERM, EROFS}
_FULL = {ENOSPC, EDQUOT}
_NO_DIRECTORY = (FileNotFoundError, NotADirectoryError)

GONE = "The directory {path} does not exist: create it (`holdfast setup` does), or correct the URL."


class Meaning(Struct, frozen=True):
    """A row of the table: what it is known by, what to raise, and what to say."""

    known_by: Callable[[OSError, Path], bool]
    preparing: type[errors.HoldfastError]
    changing: type[errors.HoldfastError]
    words: str


# The first row that fits counts.
MEANINGS = (
    Meaning(
        lambda exc, path: exc.errno in _NOT_OURS_TO_WRITE,
        errors.StoreReadOnly,
        errors.StoreReadOnly,
        "{path} cannot be used ({why}): it must be yours to read and write.",
    ),
    Meaning(
        lambda exc, path: is_shortage(exc),
        errors.Unavailable,
        errors.Unavailable,
        "{path} cannot be opened. " + ADVICE,
    ),
    Meaning(
        lambda exc, path: exc.errno in _FULL,
        errors.StoreFull,
        errors.StoreFull,
        "{path} cannot take more: the disk or the quota is full.",
    ),
    Meaning(
        lambda exc, path: isinstance(exc, FileNotFoundError) and not path.exists(),
        errors.Misconfigured,
        errors.Misconfigured,
        GONE,
    ),
    # A rename that a client of NFS sends twice, because the answer was lost, finds no file the
    # second time.
    Meaning(
        lambda exc, path: isinstance(exc, _NO_DIRECTORY) or exc.errno == EEXIST,
        errors.Misconfigured,
        errors.OutcomeUnknown,
        "{path} is not a directory that can be used.",
    ),
    Meaning(lambda exc, path: True, errors.Unavailable, errors.OutcomeUnknown, "{path}: {why}."),
)


def trouble(exc: OSError, path: Path, *, changing: bool) -> errors.HoldfastError:
    """Returns what to raise instead. `changing`: it was a rename or a removal."""
    meaning = next(row for row in MEANINGS if row.known_by(exc, path))
    kind = meaning.changing if changing else meaning.preparing
    return kind(meaning.words.format(path=path, why=exc.strerror))


def gone(path: Path) -> errors.Misconfigured:
    """Returns what to raise when the directory is not there."""
    return errors.Misconfigured(GONE.format(path=path))
