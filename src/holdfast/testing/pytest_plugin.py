"""Fixtures for the tests of code that uses locks. pytest finds this plugin by itself.

    def test_report(holdfast_locks, holdfast_chaos, holdfast_time):
        ...

holdfast_chaos      a fresh store in memory that goes wrong on demand; while the test runs, it is
                    behind every `connect()`, `aio.connect()` and `@guard` of the process
holdfast_locks      a blocking client of it
holdfast_aio_locks  an asyncio client of it
holdfast_time       the clock, which `advance(seconds)` moves
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast import Locks, aio
    from holdfast.testing.chaos import ChaosStore
    from holdfast.testing.hand_clock import HandClock


@pytest.fixture
def holdfast_chaos() -> Iterator[ChaosStore]:
    """A fresh store in memory behind all code under test: `lose(key)`, `cut()`, `mend()`."""
    from holdfast.stores.memory import MemoryStore
    from holdfast.testing.chaos import ChaosStore
    from holdfast.testing.instead import use_store

    store = ChaosStore(MemoryStore())
    with use_store(store):
        yield store


@pytest.fixture
def holdfast_locks(holdfast_chaos: ChaosStore) -> Iterator[Locks]:
    """A blocking client of the test's store."""
    from holdfast import connect

    with connect(holdfast_chaos, owner="test") as locks:
        yield locks


@pytest.fixture
def holdfast_aio_locks(holdfast_chaos: ChaosStore) -> Iterator[aio.Locks]:
    """An asyncio client of the test's store."""
    import asyncio

    from holdfast import aio

    locks = aio.connect(holdfast_chaos, owner="test")
    yield locks
    asyncio.run(locks.close())


@pytest.fixture
def holdfast_time() -> Iterator[HandClock]:
    """The clock of this process: `advance(3600)` lets an hour pass in a moment."""
    from holdfast.testing.hand_clock import HandClock

    with HandClock() as clock:
        yield clock
