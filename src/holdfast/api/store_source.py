"""From the argument of `connect()` to an open store."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from holdfast.core.discreet import hidden
from holdfast.errors import HoldfastError, Misconfigured
from holdfast.runtime.frames import without_frames
from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from holdfast.stores.shortage import out_of_descriptors, shortage

if TYPE_CHECKING:
    from pathlib import Path

L = TypeVar("L")

URL_VARIABLE = "HOLDFAST_URL"


class _Default:
    def __repr__(self) -> str:
        return f"${URL_VARIABLE} or the embedded store"


DEFAULT: Final = _Default()
# A store to open instead of any other (`holdfast.testing.instead`).
instead: Store | None = None
# A URL, an open store, None, or an object on which a store can be opened (an Engine, ...).
StoreSource: TypeAlias = Any


def connect_to(place: StoreSource, options: dict[str, Any], make: Callable[[Store], L]) -> L:
    """Returns a client of a store. If `make` fails, a store that was opened here is closed."""
    store = open_source(place, options)
    try:
        return make(store)
    except BaseException:
        if store is not place:
            store.close()
        raise


def connect_in_child(store: Store, make: Callable[[Store], L]) -> L:
    """Returns a client of the same store in a forked child, with nothing of the parent's."""
    opened = _explained(store.for_child)
    try:
        return make(opened)
    except BaseException:
        opened.close()
        raise


def open_source(place: StoreSource, options: dict[str, Any]) -> Store:
    """Open a store: the one given, $HOLDFAST_URL, or the embedded SQLite file.

    None switches locking off (`null://`).
    """
    return _explained(partial(_open, place, options))


def _explained(open_it: Callable[[], Store]) -> Store:
    try:
        return open_it()
    except HoldfastError as trouble:
        without_frames(trouble)
        raise
    except (OSError, ImportError) as exc:
        # The code of a store is only loaded now, which takes descriptors too.
        if out_of_descriptors(exc):
            raise shortage("The store") from exc
        raise


def _open(place: StoreSource, options: dict[str, Any]) -> Store:
    if instead is not None and not isinstance(place, Store):
        return instead
    if place is None:
        return open_store("null://", **options)
    if not isinstance(place, _Default):
        return open_store(place, **options)
    url = hidden(os.environ.get(URL_VARIABLE))
    if url:
        return open_store(url, **options)
    path = _made(embedded_path())
    from holdfast.stores.sqlite import SQLiteStore

    return SQLiteStore.at(path, **options)


def _made(path: Path) -> Path:
    try:
        # Only for this user: whoever can read the file sees tokens, and can keep it locked.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Misconfigured(
            f"The embedded store cannot be made at {path} ({exc.strerror}): set {URL_VARIABLE}."
        ) from exc
    return path


def embedded_path() -> Path:
    """Returns the path of the embedded store: one per user and machine."""
    from pathlib import Path

    state = os.environ.get("XDG_STATE_HOME")
    try:
        home = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError as exc:  # a user id without a home, as in some containers
        raise Misconfigured(
            f"There is no home directory for the embedded store: set {URL_VARIABLE}."
        ) from exc
    return home / "holdfast" / "locks.db"
