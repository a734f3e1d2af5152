"""How waiters are woken, and what they cost while nothing happens."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast import aio
from holdfast.core.commands import ANYONE, FREED, Decision
from holdfast.core.contract import Swapped
from holdfast.core.records import SECOND, Holder, Record, Waiter, encode
from holdfast.stores.registry import open_store
from holdfast.stores.sql import SQLStore
from holdfast.stores.waiting.handles import MOST_LATE
from holdfast.stores.waiting.local_wakeups import open_socket
from holdfast.testing.conformance import FACES, Face, run_case
from tests.conformance.sql_targets import SQLTarget
from tests.engines.base import require
from tests.engines.postgres import PgBouncer, PostgreSQL
from tests.engines.proxy import Proxy
from tests.helpers import until
from tests.stores.sql.servers import Server

# Each hand-over is a few milliseconds on a quiet machine; this only tells push from polling.
SOON_S = 0.5


def hand_over_times(url: str, key: str, times: int) -> list[float]:
    """How long after a release a waiter in another client has the lock."""
    took = []
    with holdfast.connect(url) as a, holdfast.connect(url) as b, ThreadPoolExecutor(1) as pool:
        for _ in range(times):
            lease = a.acquire(key, ttl=60)
            waiting = pool.submit(lambda: (b.acquire(key, ttl=60), time.monotonic()))
            time.sleep(0.2)
            started = time.monotonic()
            lease.release()
            heir, got = waiting.result(20)
            took.append(got - started)
            heir.release()
    return took


def test_push_is_prompt(postgres: Server) -> None:
    """On PostgreSQL a waiter has the lock soon after the release."""
    took = hand_over_times(postgres.url(), "prompt", 5)
    assert statistics.median(took) < SOON_S


def test_release_of_before_the_bell(postgres: Server) -> None:
    """Who has looked before notifications were heard, and sleeps after, does not miss a release."""
    table = f"table={postgres.new_table()}"
    holder, waiter = postgres.open(query=table), postgres.open(query=table)
    held = holder.swap("k", None, Record(1))
    assert isinstance(held, Swapped)
    assert waiter.load("k").version == held.version
    holder.swap("k", held.version, Record(2), ANYONE)
    listener = waiter._listener
    assert listener is not None
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(waiter.wait, "other", None, "a", 20 * SECOND)
        until(lambda: listener.live)
        notified = threading.Event()
        handle = waiter.register_wait("k", held.version, "b", notified.set)
        assert notified.wait(3)
        waiter.cancel_wait(handle)
        waiter.close()
        other.result(5)


def test_polling_is_not_slow_at_first(mariadb: Server) -> None:
    """On MariaDB a waiter of a moment ago has it within a look or two."""
    took = hand_over_times(mariadb.url(), "prompt", 5)
    assert statistics.median(took) < 2 * SOON_S


def test_push_for_asyncio(postgres: Server) -> None:
    """Tasks are woken like threads, and wait without one each."""

    async def run() -> None:
        async with aio.connect(postgres.url()) as a, aio.connect(postgres.url()) as b:
            took = []
            for _ in range(5):
                lease = await a.acquire("prompt-aio", ttl=60)
                waiting = asyncio.ensure_future(_get(b))
                await asyncio.sleep(0.2)
                started = time.monotonic()
                await lease.release()
                heir = await waiting
                took.append(time.monotonic() - started)
                await heir.release()
        assert statistics.median(took) < SOON_S

    async def _get(locks: aio.Locks) -> aio.Lease:
        return await locks.acquire("prompt-aio", ttl=60)

    asyncio.run(run())


@contextmanager
def handle(store: SQLStore, key: str, version: Any) -> Iterator[threading.Event]:
    """Somebody who sleeps for a key."""
    notified = threading.Event()
    asleep = store.register_wait(key, version, "token", notified.set)
    try:
        yield notified
    finally:
        store.cancel_wait(asleep)


def live_listener(store: SQLStore) -> Any:
    """The store's listener, once it rings, for those who have looked since."""
    listener = store._listener
    assert listener is not None
    for _ in range(1000):
        if listener.live:
            listener._trusted_at = 0.0
            return listener
        time.sleep(0.01)
    raise AssertionError("the listener is not live")


def ringing(server: Server, prefix: str = "listener/") -> tuple[SQLStore, SQLStore, str, Swapped]:
    """A store whose listener is live, another one of the same table, and a record in it."""
    store, other, key = server.open(), server.open(), f"{prefix}{server.new_table()}"
    made = store.swap(key, None, Record(1))
    assert isinstance(made, Swapped)
    with handle(store, key, made.version):
        live_listener(store)
    return store, other, key, made


def test_lost_listener_comes_back(postgres: Server) -> None:
    """When the listening connection breaks, its sleepers are polled for until it is back."""
    store, other, key, made = ringing(postgres)
    with handle(store, key, made.version) as notified:
        postgres.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        )
        other.swap(key, made.version, Record(2), ANYONE)
        assert notified.wait(10)
    with handle(store, "unchanged", None):
        live_listener(store)


def test_notification_before_the_sleep_is_not_lost(postgres: Server) -> None:
    """A release between a waiter's look and its sleep rings it at once."""
    store, other, key = postgres.open(), postgres.open(), f"listener/{postgres.new_table()}"
    made = store.swap(key, None, Record(1))
    assert isinstance(made, Swapped)
    with handle(store, key, made.version):
        listener = live_listener(store)
        again = other.swap(key, made.version, Record(2), ANYONE)
        assert isinstance(again, Swapped)
        for _ in range(500):
            if key in listener._last and listener._last[key].version == again.version:
                break
            time.sleep(0.01)
    with handle(store, key, made.version) as notified:
        assert notified.is_set()
    with handle(store, key, again.version) as notified:
        assert not notified.wait(0.3)


def test_a_version_that_is_not_there(postgres: Server) -> None:
    """Anybody may notify. Who waits looks for a version of the far future for a while, not
    without end."""
    store, _, key, made = ringing(postgres)
    rings: list[int] = []
    with handle(store, key, made.version):
        listener = live_listener(store)
        postgres.run(f"SELECT pg_notify('{listener._dialect.channel}', '{2**62} * {key}')")
        until(lambda: key in listener._last)
        for turn in range(10 * MOST_LATE):
            store.cancel_wait(
                store.register_wait(key, made.version + turn, "t", lambda: rings.append(1))
            )
    assert len(rings) == MOST_LATE


@pytest.mark.parametrize("how", ["swap", "amend"])
def test_a_cancelled_write_wakes_those_whom_it_lets_in(server: Server, how: str) -> None:
    """What is cancelled on its way is written all the same. Nobody else would wake them: whoever
    repeats the write finds it done."""

    async def run() -> None:
        store = open_store(server.url()).to_async()
        await store.setup()
        free, key = Record(fence=1), f"cancelled/{uuid4().hex}"
        write: asyncio.Future[object]
        if how == "swap":
            write = asyncio.ensure_future(store.swap(key, None, free, ("waits",)))
        else:
            decision = Decision(FREED, free, ("waits",))
            write = asyncio.ensure_future(store.amend(key, lambda _: decision))
        await asyncio.sleep(0)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert (await store.load(key)).record == free
        await store.close()

    opened = open_socket("waits")
    assert opened is not None
    with opened:
        asyncio.run(run())
        assert opened.recv(1) == b"1"


def test_only_those_who_may_come_in_are_rung(postgres: Server) -> None:
    """A notification names whom it is for."""
    store, other, key, made = ringing(postgres)
    first, second = threading.Event(), threading.Event()
    asleep = [
        store.register_wait(key, made.version, "first", first.set),
        store.register_wait(key, made.version, "second", second.set),
    ]
    other.swap(key, made.version, Record(2), ("first",))
    assert first.wait(10)
    assert not second.wait(0.2)
    for one in asleep:
        store.cancel_wait(one)


def test_a_notification_tells_no_secrets(postgres: Server) -> None:
    """Whoever may connect to the database may listen: there are no tokens to be heard, neither in
    a record nor of those whose turn it is."""
    store, _, key, made = ringing(postgres, "listener\n ")
    holder = Holder("h" * 32, 1, "o", "shared", SECOND, 1, 1, "b")
    queue = tuple(Waiter(f"{n:016x}" * 2, "o", "shared", SECOND, 1, 1, "b") for n in range(3))
    record, wake = Record(2, (holder,), queue), tuple(waiter.token for waiter in queue)
    heard: list[str] = []
    with psycopg.connect(postgres.engine.url(), autocommit=True) as anybody:
        anybody.execute(f'LISTEN "{live_listener(store)._dialect.channel}"')
        store.swap(key, made.version, record, wake)
        heard += [told.payload for told in anybody.notifies(timeout=10, stop_after=1)]
    assert key in heard[0]
    for token in (holder.token, *wake):
        assert token not in heard[0]


def test_a_false_notification_lets_nobody_in(postgres: Server) -> None:
    """A role without any right on the table may notify, too: whoever it wakes goes by what is in
    the table, and not by what it was told."""
    store, other, key, _ = ringing(postgres)
    role = postgres.new_table()
    postgres.run(f"CREATE ROLE {role}")
    channel = live_listener(store)._dialect.channel
    reader, writer = holdfast.Locks(other, ttl=60), holdfast.Locks(store, ttl=60)
    with reader.acquire(key, mode="shared") as lease, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(writer.acquire, key, timeout=3, fair=False)
        version, free = other.load(key).version, encode(Record(1)).decode()
        with psycopg.connect(postgres.engine.url(), autocommit=True) as stranger:
            stranger.execute(f"SET ROLE {role}")
            while not waiting.done():
                for news in (f"* {key}", f"1 * {free}\n{key}", f"* {free}\n{key}"):
                    stranger.execute("SELECT pg_notify(%s, %s)", (channel, f"{version} {news}"))
                time.sleep(0.05)
        with pytest.raises(holdfast.AcquireTimeout):
            waiting.result()
        lease.renew()


def test_idle_waiters_are_cheap(server: Server) -> None:
    """Twenty waiters of a client cost one request per second each, and one poll for all."""
    with (
        Proxy(server.engine.port) as proxy,
        holdfast.connect(server.url()) as holder,
        holdfast.connect(server.url(port=str(proxy.port))) as locks,
    ):
        keys = [f"idle/{server.kind}/{number}" for number in range(20)]
        leases = [holder.acquire(key, ttl=60) for key in keys]
        with ThreadPoolExecutor(20) as pool:
            waiting = [pool.submit(locks.acquire, key, ttl=60, timeout=30) for key in keys]
            time.sleep(3.5)
            before = proxy.requests
            time.sleep(3)
            # Each waiter renews its place in the queue every second, mostly with one UPDATE: 60 to
            # 80 times. On MySQL the client also polls for all of them, some times per second.
            assert 0 < proxy.requests - before < 150
            for lease in leases:
                lease.release()
            for got in waiting:
                got.result(30).release()


def test_wait_ends_when_the_store_closes(server: Server) -> None:
    """Waiting calls return when their store is closed."""
    store = server.open()
    store.setup()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.wait, "nobody", None, "t", 60 * SECOND)
        time.sleep(0.2)
        store.close()
        waiting.result(10)


# --- behind PgBouncer -----------------------------------------------------------------------

THROUGH_A_POOLER = (
    "exclusive_excludes",
    "readers_share",
    "no_swap_is_lost",
    "many_at_once_lose_nothing",
    "waiter_gets_it_on_release",
    "queue_is_first_come_first_served",
    "keeper_keeps",
    "keys_are_exact",
    "one_creates",
)


@pytest.fixture(scope="module")
def pooler() -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode before the shared server."""
    from tests.engines.shared import shared

    require(PgBouncer)
    bouncer = PgBouncer(shared(PostgreSQL))
    bouncer.start()
    yield bouncer
    bouncer.stop()


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", THROUGH_A_POOLER)
def test_pgbouncer(name: str, face: Face, pooler: PgBouncer) -> None:
    """A pooler in transaction mode changes nothing but how waiters are woken."""
    url = pooler.url("wakeup=poll")
    run_case(name, SQLTarget(url, url), face)


def test_pgbouncer_is_noticed(pooler: PgBouncer, caplog: pytest.LogCaptureFixture) -> None:
    """Where notifications do not get through, waiters are polled for, without being told."""
    took = hand_over_times(pooler.url(), "pooled", 3)
    assert statistics.median(took) < 3
    store = open_store(pooler.url())
    assert isinstance(store, SQLStore)
    store.setup()
    with handle(store, "pooled", None):
        assert store._listener is not None
        for _ in range(1000):
            if store._listener.deaf:
                break
            time.sleep(0.01)
        assert not store._listener.live
        assert "pooler" in caplog.text
    store.close()
