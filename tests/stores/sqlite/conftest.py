"""A file, and a client on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Locks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "locks.db"


@pytest.fixture
def locks(path: Path) -> Iterator[Locks]:
    """A client on it."""
    with holdfast.connect(f"sqlite://{path}", store_patience=1) as client:
        yield client
