"""A directory with very many locks."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from holdfast.stores.blob.names import name_of
from holdfast.stores.directory.store import DirectoryStore

FEW, MANY, PAGE = 100, 5000, 10


def _page_bytes(store: DirectoryStore) -> int:
    gc.collect()
    tracemalloc.start()
    page = store.scan("k/", None, PAGE)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [key for key, _ in page.entries] == [f"k/{number:06}" for number in range(PAGE)]
    return most


def test_a_page_needs_no_more_memory_of_a_larger_directory(tmp_path: Path) -> None:
    """Names that are not on the page are forgotten as they are read."""
    store = DirectoryStore(tmp_path / "locks")
    found = []
    for count in (FEW, FEW, MANY):  # the first time, what is made once is made
        for number in range(count):
            (tmp_path / "locks" / name_of(f"k/{number:06}")).touch()
        found.append(_page_bytes(store))
    store.close()
    assert found[-1] < found[1] + 16 * 1024
