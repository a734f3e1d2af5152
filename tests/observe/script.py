"""A run in which everything happens a known number of times, for whoever counts."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import AcquireTimeout, LeaseLost, Locks, Unavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore

# What the script does, by name and outcome.
ACQUIRED, TIMED_OUT, BUSY, SKIPPED, LOST, ERRORS = 7, 2, 3, 3, 1, 1
STILL_HELD = 1


@contextlib.contextmanager
def client(sink: Any) -> Any:
    """A client that tells this sink, and its store."""
    store = FaultyStore(MemoryStore())
    with Locks(store, owner="me", sinks=[sink], store_patience=0) as locks:
        yield locks, store


def play(locks: Locks, store: FaultyStore) -> Any:
    """Do it all. Returns the lease that is still held."""
    for number in range(3):
        locks.acquire(f"jobs:{number}").release()
    kept = locks.acquire("db:main")
    for _ in range(2):
        with pytest.raises(AcquireTimeout):
            locks.acquire("db:main", timeout=0.05)

    @locks.guard("db:main", busy="skip")
    def job() -> None: ...

    for _ in range(3):
        job()
    victim = locks.acquire("jobs:victim")
    locks.evict("jobs:victim")
    with pytest.raises(LeaseLost):
        victim.renew()
    locks.take(locks.acquire("jobs:handed").hand_over()).release()
    kept.renew()
    store.plan("refuse")
    with pytest.raises(Unavailable):
        locks.acquire("jobs:down")
    return kept
