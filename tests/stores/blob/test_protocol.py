"""How many requests are made, and what is known of the time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from obstore.store import MemoryStore

import holdfast
from holdfast.core.contract import Conflict, Swapped
from holdfast.core.records import EMPTY, NEVER, Holder, Record
from holdfast.stores.blob.bucket import Bucket
from holdfast.stores.blob.requests import Found, Get, Head, Missing, Pause, Put, Written
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.blob.transport import Transport
from holdfast.stores.registry import open_store

TTL = 5_000_000


class Counting(Transport):
    """Remembers what was asked for."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.asked: list[Any] = []

    def _answer(self, request: Any, by: Any = NEVER) -> Any:
        if not isinstance(request, Pause):
            self.asked.append(request)
        return super()._answer(request, by)

    def taken(self) -> dict[str, int]:
        """How many requests of each kind there were since the last time."""
        counted = Counter(type(request).__name__ for request in self.asked)
        self.asked.clear()
        return dict(counted)


def counting(memory: MemoryStore, **options: Any) -> tuple[BlobStore, Counting]:
    """A store, and what it asks for."""
    store = open_store(memory, **options)
    assert isinstance(store, BlobStore)
    transport = store._transport = Counting(store.bucket)
    return store, transport


def test_requests() -> None:
    """2 requests to acquire cold, 1 warm, 1 to release; a takeover 2 more to read the clock."""
    memory = MemoryStore()
    store, transport = counting(memory)
    with holdfast.connect(store) as locks:
        locks.acquire("k").release()
    store, transport = counting(memory)
    with holdfast.connect(store) as locks:
        lease = locks.acquire("k", ttl=60)
        assert transport.taken() == {"Get": 1, "Put": 1}
        lease.renew()
        assert transport.taken() == {"Put": 1}
        lease.release()
        assert transport.taken() == {"Put": 1}
        locks.acquire("k").release()
        assert transport.taken() == {"Put": 2}
        locks.acquire("k", ttl=60)
        transport.taken()
        other, theirs = counting(memory)
        with holdfast.connect(other) as fresh:
            assert fresh.try_acquire("k") is None
            assert theirs.taken() == {"Get": 1, "Put": 1, "Head": 1}
            assert fresh.try_acquire("k") is None
            assert theirs.taken() == {"Get": 1}
            fresh.acquire("new").release()
            assert theirs.taken() == {"Get": 1, "Put": 2}


def holder(token: str, beat: str, expires_at: int = 0) -> Holder:
    """Somebody who left their expiry to the clock."""
    return Holder(token, 1, token, "counted", TTL, 0, expires_at, beat, 9)


def test_expiry_counts_from_the_write() -> None:
    """Who was written without a reading of the clock runs out a ttl after the write."""
    store, _ = counting(MemoryStore())
    assert isinstance(store.swap("k", None, Record(1, (holder("a", "1"),))), Swapped)
    entry = store.load("k")
    (party,) = entry.record.holders
    assert entry.now is not None
    assert entry.now.earliest < party.expires_at <= entry.now.latest + TTL
    assert store.load("k").record == entry.record
    other, _ = counting(store.bucket.store)
    assert other.load("k").record == entry.record


def test_a_later_write_does_not_prolong() -> None:
    """Our next write to the same record moves its time, and nobody else's expiry with it."""
    store, transport = counting(MemoryStore())
    first = store.swap("k", None, Record(1, (holder("a", "1"),)))
    assert isinstance(first, Swapped)
    (before,) = counting(store.bucket.store)[0].load("k").record.holders
    transport.taken()
    version = first.version
    for beat in ("2", "3"):
        record = Record(1, (holder("a", "1"), holder("b", beat)))
        outcome = store.swap("k", version, record)
        assert isinstance(outcome, Swapped)
        version = outcome.version
    assert transport.taken() == {"Head": 1, "Put": 2}
    one, two = counting(store.bucket.store)[0].load("k").record.holders
    assert one.expires_at == before.expires_at
    assert two.expires_at > one.expires_at


def test_a_later_write_over_another_conflicts() -> None:
    """If somebody else has written meanwhile, the look for its time finds that out."""
    memory = MemoryStore()
    store, _ = counting(memory)
    first = store.swap("k", None, Record(1, (holder("a", "1"),)))
    assert isinstance(first, Swapped)
    other, _ = counting(memory)
    assert isinstance(other.swap("k", first.version, Record(2)), Swapped)
    outcome = store.swap("k", first.version, Record(1, (holder("a", "1"), holder("b", "2"))))
    assert isinstance(outcome, Conflict)
    assert outcome.entry.record.fence == 2


def test_a_dropped_record_is_none() -> None:
    """What a dropped record leaves is no record, is not listed, and can be written over."""
    store, _ = counting(MemoryStore())
    first = store.swap("k", None, Record(1))
    assert isinstance(first, Swapped)
    assert isinstance(store.swap("k", first.version, None), Swapped)
    assert store.load("k").version is None
    assert store.scan("", None, 10).entries == ()
    assert isinstance(store.swap("k", None, None), Swapped)
    assert isinstance(store.swap("k", None, Record(2)), Swapped)
    assert store.load("k").record.fence == 2
    assert isinstance(store.swap("k", None, None), Conflict)


def test_a_person_can_read_it() -> None:
    """An object is JSON with the key and the record."""
    memory = MemoryStore()
    store, _ = counting(memory)
    store.swap("a/b", None, Record(7, updated_at=5))
    raw = bytes(memory.get("a%2Fb.json").bytes())
    found = json.loads(raw)
    assert found["key"] == "a/b"
    assert found["fence"] == 7
    assert b"\n" in raw


def test_equal_records_have_unlike_bodies() -> None:
    """On S3 an ETag is a digest of the body: no two writes may have the same."""
    memory = MemoryStore()
    store, _ = counting(memory)
    bodies = set()
    for key in ("a", "b"):
        store.swap(key, None, EMPTY)
        bodies.add(bytes(memory.get(f"{key}.json").bytes()).replace(b'"b"', b'"a"'))
    assert len(bodies) == 2


# --- last writer wins -----------------------------------------------------------------------


def test_the_last_writer_wins() -> None:
    """Without conditions a write is read back after a while; who was not the last is told."""
    memory = MemoryStore()
    store, transport = counting(memory, protocol="last-writer")
    assert not store.facts.linearizable
    assert "Last writer" in " ".join(store.facts.caveats)
    calls = store.protocol.swap_calls("k", None, Record(1))
    rival, _ = counting(memory, protocol="last-writer")
    answer: Any = None
    while True:
        try:
            request = calls.send(answer)
        except StopIteration as end:
            outcome = end.value
            break
        if isinstance(request, Pause):  # while we wait, another writes, who had read the same
            body = rival.protocol.swap_calls("k", None, Record(2))
            assert isinstance(next(body), Get)
            write = body.send(Missing())
            assert isinstance(write, Put)
            rival._transport._answer(write)
            answer = False
        else:
            answer = transport._answer(request)
    assert isinstance(outcome, Conflict)
    assert outcome.entry.record.fence == 2


def test_clockless_replies_are_observed() -> None:
    """A service whose times make no sense has no clock; who is silent is watched instead."""
    store, _ = counting(MemoryStore())
    beginning = datetime(1970, 1, 1, tzinfo=UTC)
    body = store.protocol.swap_calls("k", None, Record(1, (holder("a", "1"),)))
    put = next(body)
    assert isinstance(put, Put)
    with pytest.raises(StopIteration):
        body.send(Written("v1"))
    calls: Any = store.protocol.load_calls("k")
    assert isinstance(next(calls), Get)
    clock = calls.send(Found(put.body, "v1", beginning))
    assert isinstance(clock, Put)
    assert isinstance(calls.send(Written("c")), Head)
    with pytest.raises(StopIteration) as end:
        calls.send(Found(b"", "c", beginning))
    entry = end.value.value
    assert entry.now is None
    assert entry.record.holders[0].expires_at == 0
