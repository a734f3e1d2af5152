"""Puts a store of the test's behind code that connects by itself.

    with use_store(store):
        code_that_calls_holdfast_connect()

Inside of the block, `connect()` and `connect("postgresql://…")` open the given store, and clients
that were made before, at the top of a module perhaps, use it too, also through `@locks.guard`.
A client that is made in the block with an open store keeps that.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

from holdfast.api import store_source
from holdfast.stores.base import Store


@contextlib.contextmanager
def use_store(store: Store) -> Iterator[None]:
    """Use this store instead of any other, until the end of the block."""
    before = store_source.instead
    moved = []
    store_source.instead = store
    try:
        for locks in _all_locks():
            moved.append((locks, locks._client))
            locks._client = locks._make_client(store)
        yield
    finally:
        store_source.instead = before
        for locks, client in moved:
            locks._client.end()
            locks._client = client


def _all_locks() -> list[Any]:
    """Returns the locks of every open client of this process. (Only a test looks for them like
    this: nothing keeps a list of them.)"""
    from holdfast.api import locks, locks_async

    kinds = (locks.Locks, locks_async.Locks)
    # By its type: `isinstance` would evaluate lazy objects of others, such as Django's.
    found = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    made = [one for one in found if hasattr(one, "_client")]  # the others failed on the way
    return [one for one in made if one._client.usable]
