"""Who is woken by what the server tells, and the listener that reads it for all of a client."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import holdfast
from holdfast import AcquireTimeout, aio
from holdfast.core.commands import Claim, Free
from holdfast.runtime import keeper_thread
from holdfast.stores.redis import RedisStore, listener, listener_async, notify
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.listener import Listener
from holdfast.stores.redis.notify import Subscriptions, handle_for
from holdfast.stores.redis.record_text import Names
from holdfast.stores.waiting.handles import MOST_LATE
from tests.engines.redis import RedisServer, client
from tests.helpers import until

Patch = pytest.MonkeyPatch

LONG = 60_000_000
SEEN = 10**15  # a version that all who wait have seen


class Waiting:
    """A wait in a thread of its own."""

    def __init__(self, store: RedisStore, key: str, token: str, version: int | None = SEEN) -> None:
        self.token = token
        self._thread = threading.Thread(target=store.wait, args=(key, version, token, LONG))
        self._thread.start()

    def is_over(self) -> bool:
        """Whether it has returned."""
        return not self._thread.is_alive()


class Teller:
    """Tells what a release would tell."""

    def __init__(self, server: RedisServer, store: RedisStore, key: str) -> None:
        self._port = server.port
        self._channel = store.names.channels(key)[0]
        self._rev = 1

    def calls(self, *waits: Waiting) -> None:
        """It is their turn."""
        self._rev += 1
        whom = " ".join(wait.token for wait in waits)
        with client(self._port) as redis:
            # At first the subscription may not be in force.
            until(lambda: redis.publish(self._channel, f"{self._rev} {whom}") == 1)


@pytest.fixture
def teller(server: RedisServer, store: RedisStore, key: str) -> Teller:
    """For one lock."""
    return Teller(server, store, key)


def test_who_is_named_is_woken(store: RedisStore, teller: Teller, key: str) -> None:
    """One of them, or some at once; nobody else, and nobody is forgotten."""
    until(Waiting(store, key, "first").is_over)  # by the look when the channel is new
    waits = [Waiting(store, key, token) for token in "abcde"]
    teller.calls(waits[0])
    until(waits[0].is_over)
    assert not any(wait.is_over() for wait in waits[1:])
    teller.calls(waits[1], waits[3])
    until(waits[1].is_over)
    until(waits[3].is_over)
    assert not waits[2].is_over()
    assert not waits[4].is_over()
    teller.calls(waits[4], waits[2])
    until(waits[2].is_over)
    until(waits[4].is_over)


def test_a_line_that_breaks_while_one_waits(
    server: RedisServer, store: RedisStore, teller: Teller, key: str
) -> None:
    """The listener connects again, and whoever waits is rung."""
    wait = Waiting(store, key, "a")
    until(lambda: store._listener._connection is not None)
    broken = store._listener._connection
    with client(server.port) as redis:
        until(lambda: redis.client_kill_filter(_type="pubsub") > 0)
    until(lambda: store._listener._connection not in (None, broken) or wait.is_over())
    if not wait.is_over():  # the look after the new subscription may have rung it
        teller.calls(wait)
    until(wait.is_over)


def test_close_while_one_waits(store: RedisStore, key: str) -> None:
    """It returns, and the listener ends."""
    wait = Waiting(store, key, "a")
    until(lambda: store._listener._connection is not None)
    store.close()
    until(wait.is_over)
    until(lambda: store._listener._running is None)


def test_close_while_the_listener_connects(store: RedisStore, key: str, monkeypatch: Patch) -> None:
    """Its connection is closed as soon as it is there, and nobody listens."""
    connect, begun, go_on = store._listener._connect, threading.Event(), threading.Event()
    connections: list[Connection] = []

    def connect_slowly() -> Connection:
        begun.set()
        go_on.wait(30)
        connections.append(connect())
        return connections[0]

    monkeypatch.setattr(store._listener, "_connect", connect_slowly)
    wait = Waiting(store, key, "a")
    assert begun.wait(30)
    store.close()
    until(wait.is_over)
    go_on.set()
    until(lambda: bool(connections) and connections[0].is_closed)


def test_interrupt_while_one_waits(server: RedisServer, key: str) -> None:
    """It is passed on, leaves nothing behind, and later waits are woken as ever."""
    with closing(holdfast.connect(server.url)) as locks:
        store = locks._client.store
        assert isinstance(store, RedisStore)
        for _ in range(2):  # before the listener is there, and after
            with locks.acquire(key):
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                with pytest.raises(KeyboardInterrupt):
                    locks.acquire(key, timeout=30)
                timer.join()
                assert store.load(key).record.queue == ()
                assert not store._listener.subscriptions.handles.any()
        lease = locks.acquire(key)
        threading.Timer(0.3, lease.release).start()
        locks.acquire(key, timeout=30).release()


def wait_and_leave(locks: holdfast.Locks, key: str) -> weakref.ref[Listener]:
    """Wait for a lock and get it; then wait until nobody listens."""
    store = locks._client.store
    assert isinstance(store, RedisStore)
    release = threading.Timer(0.5, locks.acquire(key).release)
    release.start()
    locks.acquire(key, timeout=30).release()
    release.join()
    until(lambda: store._listener._running is None)
    assert store._listener._connection is None
    return weakref.ref(store._listener)


def test_nobody_waits_any_more(server: RedisServer, key: str, monkeypatch: Patch) -> None:
    """Then the thread and its connection end, and start again with the next wait, as often as
    that happens. So a client that nobody closed is not kept by them."""
    monkeypatch.setattr(listener, "LINGER_S", 0.1)
    monkeypatch.setattr(listener, "QUIET_S", 0.05)
    monkeypatch.setattr(keeper_thread, "IDLE_S", 0.05)
    locks = holdfast.connect(server.url)
    for _ in range(3):
        left = wait_and_leave(locks, key)
    del locks
    until(lambda: gc.collect() >= 0 and left() is None)


def test_no_task_waits_any_more(server: RedisServer, key: str, monkeypatch: Patch) -> None:
    """The same on an event loop."""
    monkeypatch.setattr(listener_async, "LINGER_S", 0.1)
    monkeypatch.setattr(listener_async, "QUIET_S", 0.05)

    async def run() -> None:
        async with aio.connect(server.url) as locks:
            store: Any = locks._client.driver.store_here()
            for _ in range(2):
                async with locks.acquire(key):
                    with pytest.raises(AcquireTimeout):
                        await locks.acquire(key, timeout=0.2)
                async with asyncio.timeout(20):
                    while store._listener._running is not None:
                        await asyncio.sleep(0.02)
                assert store._listener._connection is None

    asyncio.run(run())


def test_nobody_waits_for_a_server_that_is_gone(victim: RedisServer, monkeypatch: Patch) -> None:
    """Nor does the thread go on connecting for ever."""
    monkeypatch.setattr(listener, "LINGER_S", 3)
    with holdfast.connect(victim.url) as locks:
        store = locks._client.store
        assert isinstance(store, RedisStore)
        lease = locks.acquire("k", ttl=60)
        with pytest.raises(AcquireTimeout):
            locks.acquire(lease.key, timeout=0.3)
        assert store._listener._running is not None
        victim.kill()
        until(lambda: store._listener._running is None)


def test_news_of_before_the_subscription(store: RedisStore, key: str) -> None:
    """Who comes late with an old version is rung by what was seen when the channel was new."""
    claim = Claim("t" * 32, "o", "exclusive", LONG)
    store.apply(key, claim, "a")
    old = store.load(key).version
    store.apply(key, Free(claim.token), "b")
    now = store.load(key).version
    first = threading.Thread(target=store.wait, args=(key, now, "a", 5_000_000))
    first.start()
    subscriptions = store._listener.subscriptions
    until(
        lambda: key in subscriptions._channels and subscriptions._channels[key].last.version == now
    )
    notified = threading.Event()
    late = store.register_wait(key, old, "b", notified.set)
    assert notified.wait(3)
    store.cancel_wait(late)
    store.close()
    first.join()


def test_old_news_ring_nobody() -> None:
    """What was told before somebody looked may be read only afterwards."""
    notified: list[int] = []
    subscriptions = Subscriptions(Names("holdfast"))
    subscriptions.add(handle_for("k", 10, "t", lambda: notified.append(1)))
    channel = b"holdfast:{k}:wake"
    subscriptions.heard([b"message", channel, b"10 *"])
    assert not notified
    subscriptions.heard([b"message", channel, b"11 *"])
    assert notified


def test_a_channel_that_is_left_while_somebody_comes(
    server: RedisServer, store: RedisStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent for who comes goes after what leaves the channel, and so it is listened to."""
    monkeypatch.setattr(notify, "UNHEARD", 1)
    first = Waiting(store, key, "a")
    until(first.is_over)
    late: list[Waiting] = []
    left = threading.Event()
    request, hear = Subscriptions._request, Listener._hear

    def request_and_be_slow(subscriptions: Subscriptions, what: bytes, keys: list[str]) -> bytes:
        if what == b"UNSUBSCRIBE" and not late:
            late.append(Waiting(store, key, "b", None))
            time.sleep(0.3)  # for who comes to overtake, if it can
        return request(subscriptions, what, keys)

    def hear_and_tell(heard_by: Listener, reply: Any) -> None:
        hear(heard_by, reply)
        if late:
            left.set()

    monkeypatch.setattr(Subscriptions, "_request", request_and_be_slow)
    monkeypatch.setattr(Listener, "_hear", hear_and_tell)
    with client(server.port) as redis:
        channel = store.names.channels(key)[0]
        until(lambda: left.is_set() or redis.publish(channel, "1 -") < 0)  # nobody hears it
        until(lambda: late[0].is_over() or redis.publish(channel, f"{SEEN} b") < 0)


JUNK = [b"", b" ", b"x", b"\xff", b"-1 *", b"1e5 *", b"9" * 5000 + b" *", "١٢ *".encode(), b"1_0 *"]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_junk_on_a_channel(server: RedisServer, key: str, face: str) -> None:
    """Whoever may publish there can say anything: who waits goes on to wait, and to listen."""

    async def wait_for_it() -> int:
        async with aio.connect(server.url) as locks, locks.acquire(key, timeout=20) as lease:
            return lease.fence

    def wait_for_it_in_a_thread() -> int:
        if face == "async":
            return asyncio.run(wait_for_it())
        with holdfast.connect(server.url) as locks, locks.acquire(key, timeout=20) as lease:
            return lease.fence

    with (
        client(server.port) as redis,
        holdfast.connect(server.url) as locks,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = locks.acquire(key, ttl=30)
        waiting = pool.submit(wait_for_it_in_a_thread)
        until(lambda: len(redis.pubsub_channels(f"holdfast:{{{key}}}*")) == 2)
        for channel in redis.pubsub_channels(f"holdfast:{{{key}}}*"):
            for junk in JUNK:
                redis.publish(channel, junk)
        until(lambda: redis.publish(f"holdfast:{{{key}}}:wake", "1 nobody") == 1)  # still there
        lease.release()
        assert waiting.result(20) > lease.fence


def test_a_version_that_is_not_there(server: RedisServer, store: RedisStore, key: str) -> None:
    """Somebody tells of a version of the far future: who waits looks for it for a while, not
    without end."""
    rings: list[int] = []
    subscriptions = store._listener.subscriptions
    first = store.register_wait(key, SEEN, "t", lambda: rings.append(0))
    with client(server.port) as redis:
        until(lambda: redis.publish(store.names.channels(key)[1], f"{9 * SEEN} *") == 1)
    until(lambda: subscriptions._channels[key].last.version == 9 * SEEN)
    store.cancel_wait(first)
    for turn in range(10 * MOST_LATE):
        store.cancel_wait(store.register_wait(key, SEEN + turn, "t", lambda: rings.append(1)))
    assert MOST_LATE <= len(rings) <= MOST_LATE + 1


def channels_of(server: RedisServer, key: str) -> int:
    """How many locks whose keys begin like this the server has to tell of."""
    with client(server.port) as redis:
        return len(redis.pubsub_channels(f"holdfast:{{{key}*:wake"))


def test_locks_that_were_waited_for_are_forgotten(
    server: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for ever new locks does not listen to all of them for ever; and whoever waits for
    one of the first again is woken."""
    monkeypatch.setattr(notify, "MOST_CHANNELS", 8)
    with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        held = [others.acquire(f"{key}{number}") for number in range(60)]
        for lease in held:
            with pytest.raises(AcquireTimeout):
                locks.acquire(lease.key, timeout=0.02)
        until(lambda: channels_of(server, key) <= 10)
        threading.Timer(0.2, held[0].release).start()
        locks.acquire(held[0].key, timeout=20, fair=False).release()


def test_locks_that_tasks_waited_for_are_forgotten(
    server: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for asyncio; those that are waited for at the same time are all listened to."""
    monkeypatch.setattr(notify, "MOST_CHANNELS", 8)

    async def run() -> None:
        async with aio.connect(server.url) as locks, aio.connect(server.url) as others:
            held = [await others.acquire(f"{key}{number}") for number in range(60)]
            for lease in held:
                with pytest.raises(AcquireTimeout):
                    await locks.acquire(lease.key, timeout=0.02)
            async with asyncio.timeout(10):
                while await asyncio.to_thread(channels_of, server, key) > 10:
                    await asyncio.sleep(0.05)
            waits = [asyncio.ensure_future(locks.acquire(lease.key)) for lease in held[:20]]
            async with asyncio.timeout(20):
                while await asyncio.to_thread(channels_of, server, key) < 20:
                    await asyncio.sleep(0.05)
                for lease in held[:20]:
                    await lease.release()
                await asyncio.gather(*waits)

    asyncio.run(run())
