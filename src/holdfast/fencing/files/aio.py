"""The same, awaited: the calls run in a thread. One that is cancelled goes on to its end."""

from __future__ import annotations

import asyncio
import os

from holdfast.fencing.files import writing
from holdfast.fencing.gate import Fenced

__all__ = ["remove", "replace", "write"]

_Path = str | os.PathLike[str]


async def write(
    path: _Path, data: bytes | str, lease: Fenced, *, key: str | None = None, fsync: bool = False
) -> None:
    """Replace a file, unless a later holder has written it."""
    await asyncio.to_thread(writing.write, path, data, lease, key=key, fsync=fsync)


async def replace(
    new: _Path, path: _Path, lease: Fenced, *, key: str | None = None, fsync: bool = False
) -> None:
    """Rename a file of yours into place, unless a later holder has written it."""
    await asyncio.to_thread(writing.replace, new, path, lease, key=key, fsync=fsync)


async def remove(
    path: _Path, lease: Fenced, *, key: str | None = None, fsync: bool = False
) -> None:
    """Remove a file, unless a later holder has written it."""
    await asyncio.to_thread(writing.remove, path, lease, key=key, fsync=fsync)
