"""Many swaps in one statement: each has its own outcome, and it is the true one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

import holdfast
from holdfast import aio
from holdfast.core.commands import ANYONE
from holdfast.core.contract import Conflict, Swapped
from holdfast.core.effects import Swap
from holdfast.core.records import Holder, Record
from holdfast.errors import OutcomeUnknown
from holdfast.stores.base import Outcome
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore, transport
from holdfast.stores.sql.batches import LONGEST_RECORD
from holdfast.stores.sql.errors import Locked
from tests.engines.proxy import Proxy
from tests.helpers import until
from tests.stores.sql.servers import Server

pytestmark = pytest.mark.timeout(90)

ODD = ['a"b\\', "{c,d}", "NULL", "e'f", "ü ", "%s :key ?", "tab\t"]


def record(fence: int, **note: Any) -> Record:
    """A record that nobody else writes."""
    holder = Holder("t", fence, "o\\\"'{},", "exclusive", 1, 1, 10**15, uuid4().hex, note=note)
    return Record(fence, (holder,))


def create(store: SQLStore, keys: Sequence[str]) -> dict[str, int]:
    """These keys, with the fence 1; their versions."""
    versions = {}
    for key in keys:
        outcome = store.swap(key, None, record(1))
        assert isinstance(outcome, Swapped)
        versions[key] = outcome.version
    return versions


def kinds(outcomes: Sequence[Outcome | Exception]) -> list[type]:
    """What became of each."""
    return [type(outcome) for outcome in outcomes]


def test_mixed_outcomes(server: Server) -> None:
    """Some land, some conflict; each answer is what the store shows, and odd texts stay exact."""
    store = server.open(query=f"table={server.new_table()}")
    keys = [*ODD, "stale", "gone", "twice"]
    versions = create(store, keys)
    store.swap("stale", versions["stale"], record(5))
    store.swap("gone", versions["gone"], None)
    wanted = {key: record(2, said=f"{key}\0") for key in keys}
    swaps = [Swap(key, versions[key], wanted[key]) for key in keys]
    swaps.append(Swap("twice", versions["twice"], record(3)))
    swaps.append(Swap("new", None, record(1)))
    swaps.append(Swap("long", None, record(1, text="x" * LONGEST_RECORD)))
    random.shuffle(swaps)
    outcomes = dict(zip(map(id, swaps), store.swap_many(swaps), strict=True))
    for swap in swaps:
        outcome, there = outcomes[id(swap)], store.load(swap.key)
        if isinstance(outcome, Swapped):
            assert (there.version, there.record) == (outcome.version, swap.record)
            assert outcome.now is not None
        else:
            assert swap.key in {"stale", "gone", "twice"}
            assert there.record != swap.record
            if isinstance(outcome, Conflict):
                assert (outcome.entry.version, outcome.entry.record) == (
                    there.version,
                    there.record,
                )
            else:  # a row that is gone may have been written before that
                assert (swap.key, type(outcome)) == ("gone", OutcomeUnknown)
                assert not server.is_postgres
    landed = [swap for swap in swaps if isinstance(outcomes[id(swap)], Swapped)]
    assert {swap.key for swap in landed} == {*ODD, "twice", "new", "long"}
    assert [swap.key for swap in landed].count("twice") == 1


def test_all_conflict(server: Server) -> None:
    """A batch of which nothing lands shows what is there instead."""
    store = server.open(query=f"table={server.new_table()}")
    versions = create(store, ["a", "b", "c"])
    outcomes = store.swap_many([Swap(key, 7, record(2)) for key in (*versions, "none")])
    assert kinds(outcomes) == [Conflict] * 4
    there = [outcome.entry.version for outcome in outcomes if isinstance(outcome, Conflict)]
    assert there == [*versions.values(), None]


def test_what_is_not_a_renewal(server: Server) -> None:
    """Deletions, and writes that wake somebody, are done as well, in one call."""
    store = server.open(query=f"table={server.new_table()}")
    versions = create(store, ["deleted", "waking", "b", "c"])
    outcomes = store.swap_many(
        [
            Swap("deleted", versions["deleted"], None),
            Swap("waking", versions["waking"], record(2), ANYONE),
            Swap("b", versions["b"], record(2)),
            Swap("c", versions["c"], record(2)),
        ]
    )
    assert kinds(outcomes) == [Swapped] * 4
    assert store.load("deleted").version is None
    assert store.load("waking").record.fence == 2


def test_clock_that_stands_still(server: Server) -> None:
    """Where the clock does not go forward the versions do, and the outcomes know them."""
    table, ahead = server.new_table(), 10**16
    store = server.open(query=f"table={table}")
    create(store, ["a", "b"])
    server.run(f"UPDATE {table} SET version = {ahead}")
    outcomes = store.swap_many([Swap(key, ahead, record(2)) for key in ("a", "b")])
    for key, outcome in zip(("a", "b"), outcomes, strict=True):
        assert isinstance(outcome, Swapped)
        assert outcome.version == store.load(key).version == ahead + 1
        assert outcome.now is not None
        assert outcome.now.latest < ahead


@pytest.mark.parametrize("mode", ["reset replies", "halve replies"])
def test_lost_reply(server: Server, mode: Any) -> None:
    """When the connection breaks in the middle, every swap of the batch is unknown."""
    with Proxy(server.engine.port) as proxy:
        store = open_store(server.url(port=str(proxy.port), query=f"table={server.new_table()}"))
        assert isinstance(store, SQLStore)
        versions = create(store, [f"k{number}" for number in range(9)])
        proxy.mode = mode
        outcomes = store.swap_many([Swap(k, v, record(2)) for k, v in versions.items()])
        assert kinds(outcomes) == [OutcomeUnknown] * 9
        proxy.mode = "pass"
        until(lambda: store.load("k0").record.fence == 2)
        assert [store.load(key).record.fence for key in versions] == [2] * 9
        store.close()


def test_no_reply_to_the_second_look(mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes a second statement to tell which landed, all are unknown without it."""
    with Proxy(mariadb.engine.port) as proxy:
        store = open_store(mariadb.url(port=str(proxy.port), query=f"table={mariadb.new_table()}"))
        assert isinstance(store, SQLStore)
        versions = {**create(store, ["a", "b"]), "c": 7}
        look = store.dialect.load_many_queries

        def cut(keys: Sequence[str]) -> Any:
            proxy.mode = "refuse"
            proxy.cut()
            return look(keys)

        monkeypatch.setattr(store.dialect, "load_many_queries", cut)
        outcomes = store.swap_many([Swap(k, v, record(2)) for k, v in versions.items()])
        assert kinds(outcomes) == [OutcomeUnknown] * 3
        proxy.mode = "pass"
        assert store.load("a").record.fence == 2
        store.close()


def test_second_look_that_is_refused(mariadb: Server) -> None:
    """What was written stays unknown, and not undone, when nobody may look which it was."""
    table = mariadb.new_table()
    root = mariadb.open(query=f"table={table}")
    versions = create(root, ["a", "b"])
    rights = "key", "version", "turn", "mode", "owners", "fence", "expires_at"
    columns = ", ".join(f"`{name}`" for name in rights)
    user = mariadb.new_user(f"UPDATE, SELECT ({columns}) ON {table}")
    store = mariadb.open(user=user, password="s3cret", query=f"table={table}")
    swaps = [Swap("a", versions["a"], record(2)), Swap("b", 1, record(2))]
    assert kinds(store.swap_many(swaps)) == [OutcomeUnknown, OutcomeUnknown]
    assert root.load("a").record.fence == 2


def test_overlapping_batches_in_opposite_order(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients that name the same rows from both ends: each row has one winner a round, and
    there is no deadlock."""
    deadlocks: list[object] = []
    monkeypatch.setattr(transport, "pause_before_retry", lambda lost, _: deadlocks.append(lost))
    table = server.new_table()
    stores = [server.open(query=f"table={table}") for _ in range(2)]
    keys = [f"k{number:02}" for number in range(60)]
    versions = create(stores[0], keys)
    for turn in range(15):
        ahead = [Swap(key, versions[key], record(2 * turn)) for key in keys]
        back = [Swap(key, versions[key], record(2 * turn + 1)) for key in reversed(keys)]
        with ThreadPoolExecutor(2) as pool:
            found = list(
                pool.map(lambda store, swaps: store.swap_many(swaps), stores, (ahead, back))
            )
        there = {key: stores[0].load(key) for key in keys}
        winners = []
        for swaps, outcomes in zip((ahead, back), found, strict=True):
            for swap, outcome in zip(swaps, outcomes, strict=True):
                assert isinstance(outcome, (Swapped, Conflict)), outcome
                if isinstance(outcome, Swapped):
                    winners.append(swap.key)
                    assert there[swap.key].version == outcome.version
                    assert there[swap.key].record == swap.record
        assert sorted(winners) == keys
        versions = {key: entry.version for key, entry in there.items()}
    assert deadlocks == []


def test_a_row_that_somebody_keeps_locked(server: Server) -> None:
    """It does not cost the others their renewal: it is left out, or all go on their own."""
    table = server.new_table()
    store = server.open(query=f"table={table}")
    versions = create(store, ["a", "b", "c"])
    swaps = [Swap(key, version, record(2)) for key, version in versions.items()]
    with server.transaction() as other:
        other.execute(text(f"SELECT * FROM {table} WHERE {server.quote('key')} = 'b' FOR UPDATE"))
        outcomes = store.swap_many(swaps)
        if server.is_postgres:
            assert kinds(outcomes) == [Swapped, Conflict, Swapped]
        else:
            assert kinds(outcomes) == [Swapped, Locked, Swapped]
    assert store.load("b").record.fence == 1


def test_application_engine(server: Server) -> None:
    """The same on an engine of an application's."""
    pool = server.pool()
    store = SQLStore.from_object(pool, table=server.new_table())
    versions = {**create(store, ["a", "b"]), "c": 7}
    outcomes = store.swap_many([Swap(k, v, record(2)) for k, v in versions.items()])
    assert kinds(outcomes)[:2] == [Swapped] * 2
    assert not isinstance(outcomes[2], Swapped)
    store.close()
    pool.dispose()


def requests_for_a_beat(proxy: Proxy, locks: Any, leases: Sequence[Any]) -> int:
    """What it takes to renew all of these, as the keeper does it."""
    holds = [lease.hold for lease in leases]
    for _ in range(2):  # the first time may have to connect
        before, renewed = proxy.requests, [hold.renewed for hold in holds]
        assert locks._client.leases.beat(holds) == [None] * len(holds)
        assert all(hold.renewed > old for hold, old in zip(holds, renewed, strict=True))
    return proxy.requests - before


def test_many_leases_beat_together(server: Server) -> None:
    """Sixty leases are renewed by one request, which may go in a few pieces."""
    with Proxy(server.engine.port) as proxy:
        url = server.url(port=str(proxy.port), query=f"table={server.new_table()}")
        with holdfast.connect(url, ttl=600) as locks:
            leases = [locks.acquire(f"k{number}") for number in range(60)]
            assert requests_for_a_beat(proxy, locks, leases) < 6


def test_many_leases_of_an_event_loop_beat_together(server: Server) -> None:
    """The same for asyncio, whose beats run in threads too."""

    async def run(proxy: Proxy) -> None:
        url = server.url(port=str(proxy.port), query=f"table={server.new_table()}")
        async with aio.connect(url, ttl=600) as locks:
            leases = [await locks.acquire(f"k{number}") for number in range(60)]
            found = await asyncio.to_thread(requests_for_a_beat, proxy, locks, leases)
            assert found < 6

    with Proxy(server.engine.port) as proxy:
        asyncio.run(run(proxy))
