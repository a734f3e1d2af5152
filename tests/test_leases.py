"""A lease of the blocking face: what it tells, how it ends, and groups of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import LeaseLost, Unavailable
from holdfast.api.locks import Locks
from holdfast.core.contract import Conflict
from holdfast.core.events import StoreTrouble
from holdfast.core.records import NEVER, TOMBSTONE, Record
from holdfast.stores.memory import MemoryStore
from tests.helpers import faulty_locks, memory_locks, until


def test_a_release_that_finds_nothing_tells_the_loss() -> None:
    """Who learns at the release that the lease was gone is told like of any other loss."""
    with memory_locks() as locks:
        lease = locks.acquire("k", ttl=60)
        event, told = lease.lost, threading.Event()
        lease.on_lost(lambda _: told.set())
        locks.evict("k")
        assert lease.release() is False
        assert event.is_set()
        assert told.wait(10)


@pytest.mark.parametrize("call", ["renew", "share", "hand_over"])
def test_what_was_seen_to_be_over_stays_over(call: str) -> None:
    """Though its record is there: nothing is written in its name, and nobody gets a ticket."""
    store = MemoryStore()
    with Locks(store, ttl=60) as locks:
        lease = locks.acquire("k")
        version = store.load("k").version
        lease.hold.lapsed = True
        with pytest.raises(LeaseLost):
            getattr(lease, call)()
        assert store.load("k").version == version


def test_a_release_that_gave_up_does_not_start_again() -> None:
    """It was tried for as long as it should; nobody waits for as long again."""
    told: list[Any] = []
    with faulty_locks(on_event=told.append, request_timeout=2) as (locks, store):
        lease = locks.acquire("k")
        store.plan(then="refuse")
        with pytest.raises(Unavailable):
            lease.release()
        assert {event.doing for event in told if isinstance(event, StoreTrouble)} == {"release"}
        store.plan()


def test_lost_callbacks_come_once_and_late_ones_at_once() -> None:
    """Each callback is called once, also one that is added after the loss, even on a closed
    client."""
    calls: list[str] = []
    with memory_locks() as locks:
        lease = locks.acquire("k", ttl=60)
        lease.on_lost(lambda _: calls.append("early"))
        locks.evict("k")
        with pytest.raises(LeaseLost):
            lease.renew()
        lease.on_lost(lambda _: calls.append("late"))
        until(lambda: sorted(calls) == ["early", "late"])
    lease.on_lost(lambda _: calls.append("closed"))
    until(lambda: "closed" in calls)
    assert sorted(calls) == ["closed", "early", "late"]


def test_callbacks_that_fail_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A mistake in a callback is logged, and the others are called all the same."""
    called = threading.Event()
    with memory_locks() as locks:
        lease = locks.acquire("k", ttl=60)
        lease.on_lost(lambda _: 1 / 0)
        lease.on_lost(lambda _: called.set())
        locks.evict("k")
        lease.release()
        assert called.wait(10)
        until(lambda: any(record.exc_info for record in caplog.records))


def test_interrupted_group_releases_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while a group is released does not leave its other leases held for ever."""
    with memory_locks() as locks:
        for leave in ("block", "release"):
            leases = locks.acquire_all(["a", "b", "c"], ttl=60)
            real = locks._client.leases.begin_release

            def interrupted(hold: Any, real: Any = real) -> Any:
                if hold.key == "b":
                    raise KeyboardInterrupt
                return real(hold)

            monkeypatch.setattr(locks._client.leases, "begin_release", interrupted)
            with pytest.raises(KeyboardInterrupt):
                leases.__exit__(None, None, None) if leave == "block" else leases.release()
            monkeypatch.undo()
            assert [lease.held for lease in leases] == [False, True, False]
            leases["b"].release()


def test_a_block_that_failed_keeps_its_error() -> None:
    """The loss of a lease, or a store that is away, never replaces the block's exception."""
    with memory_locks() as locks:
        with pytest.raises(ZeroDivisionError):
            with locks.acquire_all(["a", "b"]):
                assert 1 / len(locks.evict("a")[1:])
        with pytest.raises(LeaseLost, match="'a'"):
            with locks.acquire_all(["a", "b"]):
                locks.evict("a")


def test_groups() -> None:
    """A group is a sequence in the order asked for, and knows its keys."""
    with memory_locks() as locks, locks.acquire_all(["b", "a"]) as leases:
        assert [lease.key for lease in leases] == ["b", "a"]
        assert leases["a"].key == leases[1].key == leases[-1].key == "a"
        assert len(leases) == 2
        with pytest.raises(KeyError):
            leases["c"]
        leases.check()
        assert leases.held
        leases[0].release()
        assert not leases.held
        with pytest.raises(LeaseLost):
            leases.check()


def test_purge_counts_what_it_dropped() -> None:
    """A record that somebody used meanwhile is neither dropped nor counted."""

    class Racing(MemoryStore):
        races = False

        def swap(self, key: str, version: Any, record: Any, wake: Any = (), by: Any = NEVER) -> Any:
            if record is None and self.races:
                return Conflict(self.load(key))
            return super().swap(key, version, record, wake, by)

    store = Racing()
    now = store.now().latest
    for number in range(3):
        store.swap(f"old{number}", None, Record(1, updated_at=now - 2 * TOMBSTONE))
    store.swap("young", None, Record(1, updated_at=now))
    with Locks(store) as locks:
        store.races = True
        assert locks.purge() == 0
        store.races = False
        assert locks.purge() == 3
        assert [info.key for info in locks.list(free=True)] == ["young"]


def test_absurd_times_in_a_record_can_be_looked_at() -> None:
    """A record whose times no calendar has does not break a listing."""
    store = MemoryStore()
    with Locks(store) as locks, locks.acquire("k"):
        entry = store.load("k")
        absurd = replace(entry.record.holders[0], acquired_at=2**63 - 1)
        store.swap("k", entry.version, replace(entry.record, holders=(absurd,)))
        assert locks.show("k").holders[0].owner
        assert len(list(locks.holders())) == 1
