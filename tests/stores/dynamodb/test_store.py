"""What is particular about locks in DynamoDB: items, requests, clocks and clients."""

from __future__ import annotations

import gc
import os
import time
import weakref
from contextlib import closing
from typing import Any

import boto3
import pytest

import holdfast
from holdfast.api.locks import Locks
from holdfast.core.commands import ANYONE, NOBODY
from holdfast.core.contract import Conflict, Entry, Interval, Swapped
from holdfast.core.records import EMPTY, RANGE, SECOND, TOMBSTONE, Holder, Record, encode
from holdfast.errors import BadOption, BadURL, Busy, ForeignStore
from holdfast.stores.dynamodb import DynamoDBStore
from holdfast.stores.dynamodb.codec import DROP_AT, ItemCodec
from holdfast.stores.dynamodb.header_clock import HeaderClock
from holdfast.stores.dynamodb.versions import lets_in, next_version
from holdfast.stores.waiting.handles import WaitHandle
from tests.engines.dynamodb import session
from tests.forking import Child, raised
from tests.helpers import until
from tests.stores.dynamodb.lab import Lab, count_requests, item

HOUR = 3600 * SECOND


def held(expires_at: int, ttl: int = SECOND) -> Record:
    """A record of a lease."""
    return Record(7, (Holder("t", 7, "o", "exclusive", ttl, 1, expires_at, "b"),), updated_at=1)


# --- requests -------------------------------------------------------------------------------


def entries(store: DynamoDBStore, keys: list[str]) -> dict[str, Entry]:
    """What the poller of a store sees of these keys."""
    return store.transport.run(store.protocol.entries_calls(keys))


def test_request_counts(any_lab: Lab) -> None:
    """Two to acquire what was never seen, one to acquire it again, one to release."""
    store = any_lab.store()
    seen = count_requests(store.transport.client)
    with Locks(store, ttl=60) as locks:
        lease = locks.acquire("k")
        assert seen == ["GetItem", "PutItem"]
        lease.release()
        assert seen[2:] == ["PutItem"]
        lease = locks.acquire("k")
        assert seen[3:] == ["PutItem"]
        lease.renew()
        lease.release()
        assert seen[4:] == ["PutItem", "PutItem"]


def test_conflict_costs_one_request(clocked_lab: Lab) -> None:
    """A failed condition brings what is there along."""
    store = clocked_lab.store()
    store.swap("k", None, Record(1))
    seen = count_requests(store.transport.client)
    outcome = store.swap("k", None, Record(2))
    assert isinstance(outcome, Conflict)
    assert outcome.entry.record == Record(1)
    assert seen == ["PutItem"]


def test_conflict_on_a_server_that_does_not_tell(old_lab: Lab) -> None:
    """Where it does not, it is read."""
    store = old_lab.store()
    store.swap("k", None, Record(1))
    seen = count_requests(store.transport.client)
    outcome = store.swap("k", None, Record(2))
    assert isinstance(outcome, Conflict)
    assert outcome.entry.record == Record(1)
    assert seen == ["PutItem", "GetItem"]


# --- items ----------------------------------------------------------------------------------


def test_item_for_people(clocked_lab: Lab) -> None:
    """Who holds a lock, since when and until when can be seen in the console."""
    store = clocked_lab.store()
    with Locks(store, owner="run-123", ttl=60) as locks:
        with locks.acquire("pipeline:bcra"):
            shown = item(store, "pipeline:bcra")
            assert shown["lock_key"] == {"S": "pipeline:bcra"}
            assert shown["owner_id"] == {"S": "run-123"}
            acquired, expires = (int(shown[n]["N"]) for n in ("acquired_at", "expires_at"))
            assert abs(acquired - time.time()) < 60
            assert 60 <= expires - acquired <= 62
            assert 0 <= int(shown[DROP_AT]["N"]) - expires - TOMBSTONE // SECOND < 3600
        free = item(store, "pipeline:bcra")
        assert not {"owner_id", "acquired_at", "expires_at"} & free.keys()
        assert int(free[DROP_AT]["N"]) >= acquired + TOMBSTONE // SECOND


def test_many_owners_are_not_all_named() -> None:
    """An item does not grow by everybody's name twice."""
    holders = tuple(
        Holder(f"t{i}", 1, f"o{i}", "shared", SECOND, i * SECOND, i * SECOND + 1, "b")
        for i in range(1, 8)
    )
    made = ItemCodec("k").item("key", "1.x", Record(1, holders), None)
    assert made["owner_id"] == {"S": "o1, o2, o3, o4, +3"}
    assert made["acquired_at"] == {"N": "1"}
    assert made["expires_at"] == {"N": "8"}


@pytest.mark.parametrize("now", [None, Interval(5 * HOUR, 5 * HOUR + SECOND)])
def test_no_clock_no_end(now: Interval | None) -> None:
    """An item is not given to DynamoDB to delete unless the service's own time is in it."""
    layout = ItemCodec("k")
    assert DROP_AT not in layout.item("key", "1.x", held(0), now)
    free = layout.item("key", "1.x", Record(7, updated_at=1), now)
    if now is None:
        assert DROP_AT not in free
    else:  # whatever time of day the writer believed in
        assert int(free[DROP_AT]["N"]) * SECOND >= now.latest + TOMBSTONE


def test_abandoned_item_is_removed_and_the_fence_grows(own_lab: Lab) -> None:
    """DynamoDB deletes what is past its `drop_at`, and the next fence is larger all the same."""
    store = own_lab.store()
    with Locks(store, ttl=60) as locks:
        with locks.acquire("k") as first:
            pass
        store.transport.call(
            "update_item",
            "writing",
            Key=store.protocol.codec.key("k"),
            UpdateExpression="SET #d = :past",
            ExpressionAttributeNames={"#d": DROP_AT},
            ExpressionAttributeValues={":past": {"N": str(int(time.time()) - 3600)}},
        )
        until(lambda: not item(store, "k"), 60)
        # No item is dropped before the clock has passed all numbers of its grant, and as many more;
        # here it may have been.
        passed = first.fence + 2 * RANGE
        until(lambda: (now := store.load("k").now) and now.earliest > passed, 60)
        with locks.acquire("k") as second:
            assert second.fence > first.fence


TEXT, NUMBER = {"S": encode(Record(1)).decode()}, {"N": "1"}
FOREIGN: dict[str, dict[str, Any]] = {
    "without ours": {"owner_id": {"S": "them"}, "expires_at": NUMBER},
    "a number as version": {"record": TEXT, "version": NUMBER},
    "a number as record": {"record": NUMBER, "version": TEXT},
    "a map as record": {"record": {"M": {"x": TEXT}}, "version": TEXT},
    "bytes as record": {"record": {"B": b"\xff"}, "version": TEXT},
    "nothing": {"record": {"NULL": True}, "version": {"NULL": True}},
}


@pytest.mark.parametrize("face", ["client", "resource"])
@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_items_are_left_alone(lab: Lab, what: str, face: str) -> None:
    """An item that somebody else wrote is neither used nor listed nor evicted."""
    admin = store = lab.store()
    if face == "resource":
        resource = session().resource("dynamodb", endpoint_url=lab.endpoint)
        store = lab.open(store.options.table, resource)
    other = {"lock_key": {"S": "k"}, **FOREIGN[what]}
    admin.transport.call("put_item", "writing", Item=other)
    with Locks(store) as locks:
        for call in (locks.try_acquire, locks.show, locks.evict):
            with pytest.raises(ForeignStore, match="another key"):
                call("k")
        assert list(locks.list(free=True)) == []
    assert item(admin, "k") == other


@pytest.mark.parametrize("version", ["", "x", "9" * 5000, "9" * 5000 + ".*.x", "-1.*.x"])
def test_versions_that_others_wrote(lab: Lab, version: str) -> None:
    """A version that does not count turns is as good as any."""
    store = lab.store()
    other = {"lock_key": {"S": "k"}, "record": TEXT, "version": {"S": version}}
    store.transport.call("put_item", "writing", Item=other)
    with Locks(store) as locks, locks.acquire("k", timeout=0) as lease:
        lease.renew()


def test_partition_key_of_ones_own(lab: Lab) -> None:
    """A table whose key has another name can be used."""
    store = lab.store(partition_key="id")
    assert isinstance(store.swap("k", None, Record(1)), Swapped)
    assert store.load("k").record == Record(1)
    assert item(store, "k")["id"] == {"S": "k"}
    assert [key for key, _ in store.scan("k", None, 5).entries] == ["k"]


def test_listing_reads_on(lab: Lab) -> None:
    """A table that does not fit into one reply is listed whole."""
    store = lab.store()
    big = Record(1, (Holder("t", 1, "o", "exclusive", 1, 1, 1, "b", note={"x": "y" * 200_000}),))
    for number in range(8):
        store.swap(f"k{number}", None, big)
    seen = count_requests(store.transport.client)
    page = store.scan("", None, 5)
    assert [key for key, _ in page.entries] == [f"k{number}" for number in range(5)]
    assert len(seen) > 1
    rest = store.scan("", page.cursor, 5)
    assert [key for key, _ in rest.entries] == ["k5", "k6", "k7"]
    assert rest.cursor is None


def test_waiting_looks_at_many_keys_together(lab: Lab) -> None:
    """However many keys are waited for, few requests ask for them."""
    store = lab.store()
    keys = [f"k{number}" for number in range(130)]
    made = store.swap(keys[0], None, Record(1))
    seen = count_requests(store.transport.client)
    assert isinstance(made, Swapped)
    ((key, entry),) = entries(store, keys).items()
    assert (key, entry.version, entry.record) == (keys[0], made.version, Record(1))
    assert seen == ["BatchGetItem", "BatchGetItem"]


def test_only_those_whose_turn_it_is_look() -> None:
    """A version says whom the last write let in; whoever missed one looks to be sure."""
    first = next_version(None, NOBODY)

    def handle(token: str = "a" * 32) -> WaitHandle:
        return WaitHandle("k", first, token, lambda: None)

    def looks(handle: WaitHandle, version: str | None, record: Record = EMPTY) -> bool:
        return lets_in(handle, None if version is None else Entry(record, version))

    assert not looks(handle(), first)
    assert not looks(handle(), next_version(first, NOBODY))
    assert looks(handle(), None)
    for wake, let_in in ((("b" * 32,), False), (("b" * 32, "a" * 32), True), (ANYONE, True)):
        freed = next_version(first, wake)
        assert looks(handle(), freed) is let_in
        assert looks(handle(), next_version(freed, NOBODY)) is let_in
        assert looks(handle(), next_version(freed, ("c" * 32,)))
    patient, second = handle(), next_version(first, ("b" * 32,))
    assert not looks(patient, second)
    assert not looks(patient, second)
    assert looks(patient, next_version(second, ("a" * 32,)))
    assert looks(handle(), "spoilt") is False
    taken = Record(1, (Holder("h", 1, "you", "exclusive", 1, 0, 1, "b"),))
    assert not looks(patient, next_version(next_version(second, ANYONE), ANYONE), taken)
    assert next_version("spoilt", ANYONE).startswith("1.*.")


# --- clocks ---------------------------------------------------------------------------------


def test_clock_of_a_header() -> None:
    """A header of whole seconds is a clock with a second of doubt, and a margin."""
    clock = HeaderClock(SECOND // 4)
    second = 1_794_780_000 * SECOND
    now = clock.read({"date": "Sun, 15 Nov 2026 22:00:00 GMT"})
    assert now == Interval(second - SECOND // 4, second + SECOND + SECOND // 4 - 1)
    assert clock.last == now
    for useless in ({}, {"date": ""}, {"date": "soon"}, {"date": "Sun, 99 Nov 2026"}):
        assert clock.read(useless) is None
        assert clock.last is None


def test_long_dead_is_succeeded_at_once(clocked_lab: Lab) -> None:
    """A process that has just started takes over what died hours ago, without waiting."""
    store = clocked_lab.store()
    now = store.load("k").now
    assert now is not None
    store.swap("k", None, held(now.earliest - HOUR))
    store.swap("alive", None, held(now.latest + HOUR))
    with Locks(clocked_lab.open(store.options.table)) as fresh:
        with fresh.acquire("k", timeout=0) as lease:
            assert lease.fence > 7
        assert fresh.try_acquire("alive") is None


def test_without_a_header_the_dead_are_watched(old_lab: Lab) -> None:
    """Where no reply tells the time, who is silent for his whole ttl is succeeded."""
    store = old_lab.store()
    assert store.load("k").now is None
    store.swap("k", None, held(0, ttl=SECOND // 2))
    with Locks(old_lab.open(store.options.table)) as fresh:
        with pytest.raises(Busy):
            fresh.acquire("k", timeout=0)
        with fresh.acquire("k", timeout=30) as lease:
            assert lease.fence > 7
            shown = item(store, "k")
            assert DROP_AT not in shown
            assert int(shown["expires_at"]["N"]) > time.time()


# --- clients --------------------------------------------------------------------------------


def client_of(lab: Lab, kind: str) -> object:
    """A client, a resource or a table of an application's."""
    options = {"endpoint_url": lab.endpoint, "region_name": "eu-west-1"}
    if kind == "client":
        return session().client("dynamodb", **options)
    return session().resource("dynamodb", **options)


@pytest.mark.parametrize("kind", ["client", "resource"])
def test_objects_of_an_application(any_lab: Lab, kind: str) -> None:
    """A lock through somebody's own client is the same lock, and the client stays open."""
    ours = any_lab.store()
    table = ours.options.table
    theirs = client_of(any_lab, kind)
    with holdfast.connect(theirs, table=table, ttl=60) as a, Locks(ours, ttl=60) as b:
        with a.acquire("k") as lease:
            assert b.try_acquire("k") is None
            assert b.show("k").holders[0].fence == lease.fence
        with b.acquire("k") as heir:
            assert heir.fence > lease.fence
            assert a.try_acquire("k") is None
        assert [seen.key for seen in a.list(free=True)] == ["k"]
    with closing(any_lab.open(table, client_of(any_lab, kind))) as again:
        outcome = again.swap("k", None, Record(1))
        assert isinstance(outcome, Conflict)
        assert outcome.entry.record.fence >= heir.fence
        ((key, entry),) = entries(again, ["k", "none"]).items()
        assert (key, entry.version) == ("k", outcome.entry.version)


def test_table_of_an_application(lab: Lab) -> None:
    """boto3's Table knows its own name."""
    store = lab.store()
    resource = session().resource("dynamodb", endpoint_url=lab.endpoint)
    with holdfast.connect(resource.Table(store.options.table)) as locks:
        with locks.acquire("k"):
            assert store.load("k").record.holders


def test_other_objects_of_boto3(lab: Lab) -> None:
    """What is no client for DynamoDB, or comes too late, is refused."""
    s3 = session().client("s3", endpoint_url=lab.endpoint)
    for wrong in (s3, boto3.session.Config()):
        with pytest.raises(BadURL, match="not on a"):
            holdfast.connect(wrong, table="locks")
    with pytest.raises(BadOption, match="cannot be given region"):
        holdfast.connect(client_of(lab, "client"), table="locks", region="eu-west-1")
    with pytest.raises(BadOption, match="table is"):
        holdfast.connect(client_of(lab, "client"))


def test_url(lab: Lab) -> None:
    """A URL names the table exactly, and the options."""
    store = lab.store()
    with holdfast.connect(lab.url(store.options.table, poll_s=0.3, clock_margin_s=0.25)) as locks:
        assert locks.facts.clock_doubt == 1.5 * SECOND
        with locks.acquire("k"):
            assert store.load("k") != Entry()


# --- forks ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_nothing_but_the_connections(own_lab: Lab) -> None:
    """A client is ten megabytes, and children that fork have children. The parent goes on."""
    store = own_lab.store()
    with Locks(store, ttl=60) as locks, locks.acquire("k") as lease:
        client = weakref.ref(store.transport.client)
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0 if client() is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        lease.renew()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_of_an_application_survives_a_fork(own_lab: Lab) -> None:
    """A session does. A client does not, and the error says what to use instead."""
    found = own_lab.store()
    options = found.options
    with (
        holdfast.connect(
            session(), table=options.table, endpoint_url=options.endpoint_url
        ) as by_session,
        holdfast.connect(found.transport.client, table=options.table) as by_client,
        by_session.acquire("k", ttl=60) as lease,
    ):

        def work(_: Child) -> Any:
            return by_session.try_acquire("k") is None, raised(lambda: by_client.show("k"))

        seen, said = Child(work).answer()
        assert seen is True
        assert said.startswith("ClientForked: boto3's clients do not survive a fork")
        assert not by_client.show("k").free
        lease.renew()
