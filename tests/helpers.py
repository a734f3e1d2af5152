"""What several tests need: waiting for something, and quick clients."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Locks
from holdfast.api.requests import Requests
from holdfast.runtime import clock
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until something is true."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "it did not come true in time"
        time.sleep(0.005)


def unique() -> str:
    """A name that nobody else uses."""
    return uuid4().hex


@contextlib.contextmanager
def memory_locks(**options: Any) -> Iterator[Locks]:
    """A client on a memory store of its own."""
    with holdfast.connect(f"memory://{unique()}", **options) as locks:
        yield locks


@contextlib.contextmanager
def faulty_locks(**options: Any) -> Iterator[tuple[Locks, FaultyStore]]:
    """A client whose store fails on cue, and that store."""
    store = FaultyStore(MemoryStore())
    with Locks(store, **options) as locks:
        yield locks, store


def short_calls(monkeypatch: pytest.MonkeyPatch, length: int | Callable[[], int]) -> None:
    """Let calls that do not wait for a lock give up after so many microseconds, whatever their
    client's `request_timeout` is."""

    def answers_by(_: object) -> int:
        return clock.monotonic() + (length() if callable(length) else length)

    monkeypatch.setattr(Requests, "answers_by", answers_by)


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    descriptors = list(Path("/proc/self/fd").iterdir())
    return any(path.exists() and _leads_to(one, path) for one in descriptors)


def _leads_to(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.samefile(path)
    except OSError:  # it was the one for looking at the folder
        return False
