"""Fences only grow, also when the record is lost and readings of the clock were slow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from holdfast.api.leases import Lease
from holdfast.api.locks import Locks
from holdfast.core.contract import Conflict
from holdfast.core.records import NEVER, RANGE, SECOND
from holdfast.stores.memory import MemoryStore


class SlowToRead(MemoryStore):
    """A store whose requests take a while to arrive."""

    delay_s = 0.0

    def load(self, key: str, by: Any = NEVER) -> Any:
        """Late."""
        time.sleep(self.delay_s)
        return super().load(key, by)


def test_a_slow_request_does_not_put_the_fence_ahead() -> None:
    """A client that cannot tell how late it is must not take a fence from the future: if its
    record is then lost, the next fence would be smaller."""
    store = SlowToRead()
    fences = []
    for delay_s in (0.3, 0.0, 0.2, 0.0):
        store.delay_s = delay_s
        with Locks(store) as locks:
            with locks.acquire("k") as lease:
                fences.append(lease.fence)
            store.delay_s = 0
            entry = store.load("k")
            assert not isinstance(store.swap("k", entry.version, None), Conflict)
    assert fences == sorted(set(fences))


def test_a_fence_is_never_ahead_of_the_stores_clock() -> None:
    """However a lock is used, its fence is no more than what the store's clock shows, if that has
    gone on by a range of fences since the grant before."""
    for turn, (lease, store) in enumerate(_grants()):
        assert lease.fence <= store.now().latest, turn
        time.sleep(2 * RANGE / SECOND)


def test_a_grant_right_after_another_takes_no_more_than_its_range_ahead() -> None:
    """A second grant within the range of the first has numbers that the clock can show by then, as
    far as the client can tell: rule 3 of `rules`."""
    for turn, (lease, store) in enumerate(_grants()):
        assert lease.fence <= store.now().latest + RANGE, turn


def _grants() -> Iterator[tuple[Lease, SlowToRead]]:
    """One lock, got, freed and evicted again and again, with vague readings of the clock."""
    store = SlowToRead()
    store.delay_s = 0.05
    with Locks(store) as locks:
        for turn in range(20):
            with locks.acquire("k", timeout=0) as lease:
                yield lease, store
            if turn % 5 == 0:
                locks.evict("k")
                assert locks.show("k").fence <= store.now().latest
