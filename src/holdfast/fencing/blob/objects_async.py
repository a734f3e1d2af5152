"""Objects that are replaced on a condition: the fence is in their metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError
from obstore.store import LocalStore

from holdfast.errors import BadOption, Unavailable, Unsupported
from holdfast.fencing.blob.marks import Present, attributes_of, present_of
from holdfast.fencing.gate import Fence, Fenced, fence_of
from holdfast.runtime.flavour import ASYNC
from holdfast.stores.blob.obstore_runtime import about_to_use

if ASYNC:
    from holdfast.fencing.files import aio as files
else:
    from holdfast.fencing import files

# Each time somebody else has written in between. A later holder ends it with `StaleFence`.
TRIES = 20
MISSING = (NotFoundError, FileNotFoundError)  # obstore raises either


async def put(
    store: Any,
    path: str,
    data: bytes | str,
    lease: Fenced,
    *,
    key: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Write an object, unless a later holder has written it: one read, and one conditional put.

    Raises `StaleFence` if a later holder has written or deleted it. `store` is obstore's.
    `attributes` are those of `obstore.put`, such as Content-Type.
    """
    fence = fence_of(lease, key)
    raw = data.encode() if isinstance(data, str) else bytes(data)
    if isinstance(store, LocalStore):
        await files.write(_local(store, path), raw, fence)
    else:
        await _write(store, path, raw, fence, attributes_of(fence, attributes))


async def delete(store: Any, path: str, lease: Fenced, *, key: str | None = None) -> None:
    """Delete an object, unless a later holder has written it.

    In a bucket an empty object with a mark stays, which remembers the fence; `get` treats it as
    deleted.
    """
    fence = fence_of(lease, key)
    if isinstance(store, LocalStore):
        await files.remove(_local(store, path), fence)
    else:
        await _write(store, path, b"", fence, attributes_of(fence, None, deleted=True))


async def get(store: Any, path: str) -> bytes:
    """Returns the content of an object. Raises `FileNotFoundError` if there is none, also after a
    `delete`."""
    about_to_use(path)
    try:
        found = await obstore.get_async(store, path)
    except MISSING as exc:
        raise FileNotFoundError(path) from exc
    if present_of(found.meta, found.attributes, path).deleted:
        raise FileNotFoundError(f"{path} was deleted")
    return bytes(await found.bytes_async())


async def _write(
    store: Any, path: str, raw: bytes, fence: Fence, attributes: dict[str, str]
) -> None:
    about_to_use(path)
    for _ in range(TRIES):
        present = await _look(store, path)
        if present is not None:
            present.check(fence)
        mode: Any = "create" if present is None else present.mode
        try:
            await obstore.put_async(
                store, path, raw, mode=mode, attributes=attributes, use_multipart=False
            )
        except (AlreadyExistsError, PreconditionError):
            continue
        except NotImplementedError as exc:
            raise Unsupported(
                f"{type(store).__name__} has no conditional writes, and nothing was written: a "
                f"stale writer could not be kept out."
            ) from exc
        return
    raise Unavailable(f"Others kept changing {path}; nothing was written: try again.")


async def _look(store: Any, path: str) -> Present | None:
    try:
        found = await obstore.get_async(store, path, options={"head": True})
    except MISSING:
        return None
    return present_of(found.meta, found.attributes, path)


def _local(store: LocalStore, path: str) -> Path:
    """Returns where a path of the store is. As obstore does it: never outside of the store."""
    parts = path.removeprefix("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise BadOption(f"The path {path!r} has an empty part, . or .. between its slashes.")
    return Path(store.prefix or "/", *parts)
