"""What is special about this store: its layout, its index, its batches and its subscriptions."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.core.acquiring import FRONT_PLACE_TTL
from holdfast.core.commands import Claim, Free, Granted, NotHeld, Renew
from holdfast.core.contract import Swapped
from holdfast.core.effects import Apply
from holdfast.core.records import SECOND, Holder, Record, Waiter
from holdfast.errors import CorruptRecord, HoldfastError
from holdfast.stores.redis import RedisStore, pipeline, record_text
from holdfast.stores.redis.protocol import slot_of
from holdfast.stores.redis.record_text import Names, coded
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisCluster, RedisServer, client
from tests.engines.shared import shared


def claim(token: str, ttl_s: float = 60) -> Claim:
    """A claim."""
    return Claim(token, "o", "exclusive", round(ttl_s * SECOND))


# --- layout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "{a}", "}{", "%7B", "100%", "a{b}c{d}", "名前", "}" * 512])
def test_names_are_exact_and_have_a_hash_tag(key: str) -> None:
    """A record's name leads back to its key, and whatever belongs to a lock is in one slot."""
    names = Names("app")
    record = names.record(key)
    assert names.key(record) == key
    assert names.key(record + record_text.WAKE) == key
    assert record.count(b"{") == record.count(b"}") == 1
    assert slot_of(record) == slot_of(record + record_text.WAKE)


def test_slots_are_those_of_redis() -> None:
    """The slot is computed as the cluster computes it."""
    with client(shared(RedisCluster).nodes[0].port) as redis:
        for key in ("a", "{a}", "名前", "x" * 300):
            name = Names("holdfast").record(key)
            assert slot_of(name) == redis.execute_command("CLUSTER KEYSLOT", name)


def test_record_can_be_read_by_people(server: RedisServer, store: RedisStore, key: str) -> None:
    """What is stored is JSON, with exact numbers."""
    applied = store.apply(key, claim("t"), "b")
    assert isinstance(applied.verdict, Granted)
    with client(server.port) as redis:
        found = json.loads(redis.get(f"holdfast:{{{key}}}"))
    assert found["holders"][0]["fence"] == applied.verdict.holder.fence
    assert found["holders"][0]["expires_at"] == applied.verdict.holder.expires_at
    assert found["rev"] == applied.version


@pytest.mark.parametrize("token", ['quo"te', "back\\slash", "sp ace", "é", "🔒", "*", "line\n", ""])
def test_any_token_is_exact(store: RedisStore, key: str, token: str) -> None:
    """Tokens and beats need not be hex, though ours are."""
    holder = Holder(token, 1, "o", "exclusive", 1, 2, 0, token)
    waiter = Waiter(token, "o", "shared", 1, 2, 0, token)
    record = Record(1, (holder,), (waiter,), 3, token)
    store.swap(key, None, record)
    assert store.load(key).record == record
    assert isinstance(store.apply(key, Renew(token + "x"), "b").verdict, NotHeld)
    verdict = store.apply(key, Renew(token), token).verdict
    assert isinstance(verdict, Granted)
    assert verdict.holder.beat == token


def free(rev: str) -> str:
    """The record of a free lock."""
    head = f'{{"v":1,"rev":{rev},"fence":1,"updated_at":1,"freed":"","soonest":0'
    return f'{head},"holders":[\n],"queue":[\n]}}'


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "{}", '{"v":1}', "[1]", '{"v":1,"fence":1}',
        '{"v":1,"rev":1,"fence":99999999999999999,"updated_at":1,"freed":"","holders":[\n],"queue":[\n]}',
        '{"v":1,"rev":1,"fence":1,"updated_at":1,"freed":"","holders":[\n{}\n],"queue":[\n]}',
        '{"v":1,"rev":1,"fence":1,"updated_at":1,"freed":"","holders":[],"queue":[]}',
        '{"v":0,"rev":1,"old":true}',
        *(free(rev) for rev in ("9007199254740991", "9999999999999999", "9" * 400, "9" * 5000)),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_is_not_a_record(server: RedisServer, store: RedisStore, key: str, text: str) -> None:
    """Whatever the scripts do not understand is a fault for a load too, and evict replaces it."""
    with client(server.port) as redis, closing(holdfast.connect(server.url)) as locks:
        redis.set(f"holdfast:{{{key}}}", text)
        assert store.load(key).fault
        for command in (claim("t"), Renew("t"), Free("t")):
            with pytest.raises(HoldfastError, match="evict"):
                store.apply(key, command, "b")
        locks.evict(key)
        with locks.acquire(key, timeout=0):
            pass


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_note_without_end(server: RedisServer, store: RedisStore, key: str, face: str) -> None:
    """What the scripts understand, and the decoder gives up on, is a fault, too."""

    async def claim_it() -> None:
        async with aio.connect(server.url) as locks:
            await locks.acquire(key, timeout=0)

    with (
        client(server.port) as redis,
        closing(holdfast.connect(server.url, pass_on=False)) as locks,
    ):
        lease, name = locks.acquire(key, note={"x": 0}), f"holdfast:{{{key}}}"
        deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        redis.set(name, redis.get(name).replace(b'{"x":0}', deep))
        claims: dict[str, Callable[[], object]] = {
            "sync": lambda: locks.acquire(key, timeout=0),
            "async": lambda: asyncio.run(claim_it()),
        }
        with pytest.raises(CorruptRecord, match="evict"):
            claims[face]()
        with pytest.raises(CorruptRecord, match="evict"):
            lease.renew()
        locks.evict(key)


# --- the index ------------------------------------------------------------------------------


@pytest.fixture
def namespace(server: RedisServer, key: str) -> Iterator[tuple[RedisStore, Any]]:
    """A store in a namespace of its own, and a client to look behind it."""
    store = open_store(server.url, namespace=key, tombstone_s=60)
    assert isinstance(store, RedisStore)
    with closing(store), client(server.port) as redis:
        yield store, redis


def test_index_forgets_what_has_expired(namespace: tuple[RedisStore, Any]) -> None:
    """Records that expired leave the index when new ones come, two for each."""
    store, redis = namespace
    for number in range(6):
        store.apply(f"old{number}", claim("t"), "b")
    for number in range(5):
        redis.delete(store.names.record(f"old{number}"))
    for code in redis.zrange(store.names.due, 0, -1):
        redis.zadd(store.names.due, {code: 1})
    for number in range(4):
        store.apply(f"new{number}", claim("t"), "b")
    expected = [b"new0", b"new1", b"new2", b"new3", b"old5"]
    assert redis.zrange(store.names.index, 0, -1) == expected
    assert sorted(redis.zrange(store.names.due, 0, -1)) == expected
    assert redis.zscore(store.names.due, "old5") > 1


def test_scan_cleans_up(namespace: tuple[RedisStore, Any]) -> None:
    """A listing takes what is gone out of the index, and shows what is there."""
    store, redis = namespace
    for number in range(4):
        store.apply(f"{{k{number}}}", claim("t"), "b")
    redis.delete(store.names.record("{k1}"))
    page = store.scan("{k", None, 3)
    assert [key for key, _ in page.entries] == ["{k0}", "{k2}"]
    assert page.cursor == "{k2}"
    assert [key for key, _ in store.scan("{k", page.cursor, 3).entries] == ["{k3}"]
    assert redis.zcard(store.names.index) == redis.zcard(store.names.due) == 3


def test_swap_of_a_record_from_the_future(namespace: tuple[RedisStore, Any]) -> None:
    """Where the clock was set back, versions grow all the same."""
    store, redis = namespace
    store.swap("k", None, Record(1))
    ahead = 10**15 * 8
    name = store.names.record("k")
    redis.set(name, re.sub(rb'"rev":\d+', b'"rev":%d' % ahead, redis.get(name)))
    swapped = store.swap("k", ahead, Record(2))
    assert isinstance(swapped, Swapped)
    assert swapped.version == store.load("k").version == ahead + 1


def test_setup_repairs_the_index(namespace: tuple[RedisStore, Any]) -> None:
    """Setting up enters the records that are not in the index."""
    store, redis = namespace
    names = ["a", "{b}", "名前"]
    for name in names:
        store.apply(name, claim("t"), "b")
    redis.delete(store.names.index, store.names.due)
    redis.rpush(store.names.record("foreign"), "theirs")
    assert store.scan("", None, 10).entries == ()
    store.setup()
    assert [key for key, _ in store.scan("", None, 10).entries] == names
    assert sorted(redis.zrange(store.names.due, 0, -1)) == sorted(map(coded, names))


def test_names_that_are_no_text(namespace: tuple[RedisStore, Any]) -> None:
    """What others put there, or into the index, is not listed, and in nobody's way."""
    store, redis = namespace
    head = store.names.head
    for name in (b"\xff\xfe", b"%FF", b"a\x80"):
        redis.set(head + b"{" + name + b"}", "x")
        redis.zadd(store.names.index, {name: 0})
    store.setup()
    for key in "abc":
        store.swap(key, None, Record(1))
    listed, cursor = [], None
    while True:
        page = store.scan("", cursor, 1)
        listed += [key for key, _ in page.entries if not key.startswith("%")]
        cursor = page.cursor
        if cursor is None:
            break
    assert listed == ["a", "b", "c"]


def test_tombstone(namespace: tuple[RedisStore, Any]) -> None:
    """A free record stays as long as the option says."""
    store, redis = namespace
    store.apply("k", claim("t", 10), "b")
    assert 69_000 < redis.pttl(store.names.record("k")) <= 70_000
    store.apply("k", Free("t"), "b")
    assert 59_000 < redis.pttl(store.names.record("k")) <= 60_000
    at = 10**15
    holder = Holder("t", 1, "a", "exclusive", 10 * SECOND, at, at + 10 * SECOND, "b")
    store.swap("swapped", None, Record(1, (holder,), updated_at=at))
    assert 69_000 < redis.pttl(store.names.record("swapped")) <= 70_001


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["single", "cluster"])
def test_many_commands_in_one_trip(topology: str, key: str) -> None:
    """A batch is answered one by one, in order, also when scripts have to be brought along."""
    engine: Any = shared(RedisServer) if topology == "single" else shared(RedisCluster)
    with closing(open_store(engine.url)) as store:
        for node in getattr(engine, "nodes", [engine]):
            with client(node.port) as redis:
                redis.script_flush()
        keys = [f"{key}-{number}" for number in range(50)]
        for kind in (Granted, Granted):
            applied = store.apply_many([Apply(one, claim("t"), "b") for one in keys])
            assert [type(getattr(one, "verdict", one)) for one in applied] == [kind] * 50
        mixed = store.apply_many(
            [Apply(one, Renew("t" if place % 2 else "u"), "c") for place, one in enumerate(keys)]
        )
        kinds = [type(getattr(one, "verdict", one)) for one in mixed]
        assert kinds == [NotHeld, Granted] * 25


def test_batch_on_a_dead_server(victim: RedisServer) -> None:
    """Every command of a batch that failed has an error of its own."""
    with closing(open_store(victim.url)) as store:
        victim.kill()
        outcomes = store.apply_many([Apply(f"k{n}", claim("t"), "b") for n in range(3)])
        assert all(isinstance(outcome, HoldfastError) for outcome in outcomes)


def test_many_leases_are_renewed_together(server: RedisServer, key: str) -> None:
    """A client with many leases keeps them all, with far fewer trips than leases."""
    with closing(holdfast.connect(server.url, ttl=1.5)) as locks:
        leases = [locks.acquire(f"{key}-{number}") for number in range(200)]
        time.sleep(2.5)
        assert all(lease.held for lease in leases)
        for lease in leases:
            assert lease.release()


# --- waiting --------------------------------------------------------------------------------


def count_claims(redis: Any) -> int:
    """How many scripts the server has run."""
    stats = redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


@pytest.mark.timeout(110)
def test_many_waiters_do_not_stampede(victim: RedisServer) -> None:
    """Of 1,000 queued waiters a release wakes the one whose turn it is."""

    async def run() -> None:
        locks = aio.connect(victim.url, ttl=300, pass_on=False)  # every task goes to the store
        other = aio.connect(victim.url, ttl=300)
        lease = await other.acquire("k")
        waiting = [asyncio.ensure_future(get(locks)) for _ in range(1000)]
        while not await have_settled(other):
            await asyncio.sleep(0.1)
        with client(victim.port) as redis:
            for _ in range(3):
                before = count_claims(redis)
                started = time.monotonic()
                await lease.release()
                done, _ = await asyncio.wait(waiting, return_when="FIRST_COMPLETED", timeout=30)
                took = time.monotonic() - started
                (winner,) = done
                waiting.remove(winner)
                lease = winner.result()
                # Its own release and claim, and what renews places in the queue meanwhile,
                # which comes in waves; a stampede would be a thousand at once.
                assert count_claims(redis) - before < 500 + 400 * took
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await locks.close()
        await other.close()

    async def get(locks: Any) -> Any:
        return await locks.acquire("k", fair=True)

    async def have_settled(locks: Any) -> bool:
        """Whether all have their places, and know how far back: a first place is a short one, and
        is renewed after a second."""
        queue = (await locks._client.driver._store.load("k")).record.queue
        return len(queue) == 1000 and all(one.ttl > 2 * FRONT_PLACE_TTL for one in queue[100:])

    asyncio.run(run())


def test_one_connection_listens_for_all(server: RedisServer, key: str) -> None:
    """Many waiters of one client share one subscribed connection."""
    with (
        closing(holdfast.connect(server.url, pass_on=False)) as locks,
        client(server.port) as redis,
    ):
        before = len(redis.client_list(_type="pubsub"))
        leases = [locks.acquire(f"{key}{number}") for number in range(5)]
        got: list[Any] = []
        threads = [
            threading.Thread(target=lambda name=lease.key: got.append(locks.acquire(name)))
            for lease in leases
        ]
        for thread in threads:
            thread.start()
        ends_at = time.monotonic() + 10
        while redis.pubsub_numsub(f"holdfast:{{{leases[-1].key}}}:wake")[0][1] != 1:
            assert time.monotonic() < ends_at
            time.sleep(0.01)
        assert len(redis.client_list(_type="pubsub")) == before + 1
        for lease in leases:
            lease.release()
        for thread in threads:
            thread.join(10)
        assert len(got) == 5


def test_without_the_right_to_subscribe(victim: RedisServer, key: str) -> None:
    """Who may not listen or publish polls, and is told."""
    with client(victim.port) as redis:
        redis.acl_setuser("app", enabled=True, nopass=True, keys=["*"], commands=["+@all"],
                          reset_channels=True)  # fmt: skip
    with closing(holdfast.connect(f"redis://app:x@127.0.0.1:{victim.port}")) as locks:
        lease = locks.acquire(key)
        threading.Timer(0.3, lease.release).start()
        with locks.acquire(key, timeout=20):
            pass


# --- interruptions --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["apply", "swap"])
def test_cancelled_write_has_finished(
    victim: RedisServer, key: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is cancelled while the server takes its time ends when its write is done, if that
    is not long."""
    monkeypatch.setattr(pipeline, "DRAIN_S", 30)

    async def run() -> None:
        store = open_store(victim.url).to_async()
        await store.apply(f"{key}-warm", claim("t"), "b")  # so that the server knows the scripts
        await store.swap(f"{key}-too", None, Record(1))
        with client(victim.port) as redis:
            redis.client_pause(500, all=False)  # those who write wait for so long
            call: Any = store.apply(key, claim("t"), "b")
            if way == "swap":
                call.close()
                call = store.swap(key, None, Record(1))
            task = asyncio.ensure_future(call)
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert redis.exists(Names("holdfast").record(key))
        await store.close()

    asyncio.run(run())


def test_cancelled_calls_leave_nothing(server: RedisServer, key: str) -> None:
    """Cancelling an acquire at any moment leaves no lock and no shifted answers."""

    async def run() -> None:
        locks = aio.connect(server.url)
        for turn in range(60):
            task = asyncio.ensure_future(get(locks, turn))
            others = [asyncio.ensure_future(hold(locks, f"{key}-{n}")) for n in range(3)]
            for _ in range(turn % 12):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await asyncio.gather(*others)
            if task.cancelled():
                assert (await locks.show(f"{key}/{turn}")).free
            else:
                await task.result().release()
        await locks.close()

    async def get(locks: Any, turn: int) -> Any:
        return await locks.acquire(f"{key}/{turn}")

    async def hold(locks: Any, name: str) -> None:
        async with locks.acquire(name) as lease:
            assert lease.key == name

    asyncio.run(run())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_the_parent_goes_on(server: RedisServer, key: str) -> None:
    """The client and a new one work in a child, and the parent's goes on."""
    with closing(holdfast.connect(server.url)) as locks:
        lease = locks.acquire(key)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mine = holdfast.connect(server.url)
                refused = [each.try_acquire(key) is None for each in (locks, mine)]
                code = 0 if refused == [True, True] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.renew()
        assert lease.release() is True
