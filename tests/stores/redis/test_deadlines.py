"""Every request has a time by which its answer must be there: with a server that is frozen, a call
is back by then, says how sure it is, and leaves no connection with an answer that is still to come.

What is asked of the clock: only that a call which would otherwise take 60 s does not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.core.commands import Claim, Free, Freed, Granted, Renew
from holdfast.core.effects import Apply
from holdfast.core.records import NEVER, SECOND
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.runtime import clock
from holdfast.stores.redis import RedisStore, pipeline
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisCluster, RedisServer, SentinelSetup
from tests.engines.shared import shared
from tests.stores.redis.test_idle import answer

FACES = pytest.mark.parametrize("face", ["sync", "async"])
# Longer than any call here may take, and than any test.
LONG = "socket_timeout=60&socket_connect_timeout=60"


def claim(token: str = "t" * 32) -> Claim:
    """For oneself."""
    return Claim(token, "o", "exclusive", 60_000_000)


def soon(seconds: float = 0.3) -> int:
    """A time by which the answer must be there."""
    return clock.monotonic() + round(seconds * SECOND)


class Setup:
    """Servers that can be frozen."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.servers = getattr(engine, "nodes", None) or [getattr(engine, "master", engine)]
        self.sentinels = getattr(engine, "sentinels", [])
        self.url = f"{engine.url}?{LONG}"

    @contextmanager
    def frozen(self, *servers: Any) -> Iterator[None]:
        """These, or all, until the end of the block."""
        some = servers or tuple(self.servers)
        for server in some:
            server.pause()
        try:
            yield
        finally:
            for server in some:
                server.resume()


@pytest.fixture(params=[RedisServer, SentinelSetup, RedisCluster], ids=lambda kind: kind.__name__)
def setup(request: pytest.FixtureRequest) -> Iterator[Setup]:
    """One server, a master with its Sentinels, and a cluster, to be harmed."""
    shared(RedisServer)  # skips or fails where there is none
    engine = request.param()
    engine.start()
    yield Setup(engine)
    engine.stop()


def opened(url: str, face: str) -> Any:
    """A store of either face."""
    store: Any = open_store(url)
    return store if face == "sync" else store.to_async()


async def trouble(call: Callable[[], Any]) -> HoldfastError:
    """What a call raises, which must be back long before its engine's own time-out."""
    started = time.monotonic()
    with pytest.raises(HoldfastError) as caught:
        await answer(call())
    assert time.monotonic() - started < 30
    return caught.value


@FACES
def test_on_a_connection_that_is_there(setup: Setup, key: str, face: str) -> None:
    """A write that left is an unknown outcome, a look is not done; afterwards all is well, and each
    answer is the one to its own question."""

    async def run() -> None:
        store = opened(setup.url, face)
        await answer(store.apply(key, claim(), "a"))
        await answer(store.load(key))
        with setup.frozen():
            renew = await trouble(lambda: store.apply(key, Renew(claim().token), "b", soon()))
            assert type(renew) is OutcomeUnknown
            assert type(await trouble(lambda: store.load(key, soon()))) is Unavailable
            assert type(await trouble(lambda: store.scan("", None, 5, soon()))) is Unavailable
        assert (await answer(store.load(key))).record.holders[0].token == claim().token
        freed = await answer(store.apply(key, Free(claim().token), "c"))
        assert isinstance(freed.verdict, Freed)
        await answer(store.close())

    asyncio.run(run())


@FACES
def test_without_a_connection(setup: Setup, key: str, face: str) -> None:
    """A server that accepts and says nothing; in a cluster, none that tells who has which slot."""

    async def run() -> None:
        store = opened(setup.url, face)
        with setup.frozen():
            error = await trouble(lambda: store.apply(key, claim(), "a", soon()))
            assert isinstance(error, Unavailable | OutcomeUnknown)
        applied = await answer(store.apply(key, claim("u" * 32), "b"))
        assert applied.verdict is not None
        await answer(store.close())

    asyncio.run(run())


@FACES
def test_a_frozen_sentinel_is_passed_over(key: str, face: str) -> None:
    """The next one is asked while there is time: the first gets only its share of it."""
    shared(RedisServer)
    engine = SentinelSetup()
    engine.start()
    setup = Setup(engine)

    async def run() -> None:
        store = opened(f"{engine.url}?socket_timeout=6", face)
        with setup.frozen(setup.sentinels[0]):
            applied = await answer(store.apply(key, claim(), "a", soon(40)))
            assert isinstance(applied.verdict, Granted)
        await answer(store.close())

    try:
        asyncio.run(run())
    finally:
        engine.stop()


def test_a_batch(victim: RedisServer, key: str) -> None:
    """Nobody knows of any of them."""
    store = open_store(f"{victim.url}?{LONG}")
    beats = [Apply(f"{key}{number}", claim(), "a") for number in range(3)]
    store.apply_many(beats)
    victim.pause()
    try:
        outcomes = store.apply_many(beats, soon())
    finally:
        victim.resume()
    assert [type(one) for one in outcomes] == [OutcomeUnknown] * 3
    store.close()


def test_a_connection_is_not_used_again(victim: RedisServer, key: str) -> None:
    """On which an answer is still to come."""
    store = open_store(f"{victim.url}?{LONG}")
    assert isinstance(store, RedisStore)
    store.load(key)
    used = store._transport._main._idle[0]
    victim.pause()
    with pytest.raises(OutcomeUnknown):
        store.apply(key, claim(), "a", soon())
    victim.resume()
    assert used.is_closed
    assert store.load(key).fault is None
    assert used not in store._transport._main._idle
    store.close()


def test_time_that_is_over_before_it_is_sent(server: RedisServer, key: str) -> None:
    """Nothing is sent, and the connection is none the worse."""
    store = open_store(server.url)
    store.load(key)
    with pytest.raises(Unavailable):
        store.apply(key, claim(), "a", clock.monotonic() - 1)
    assert store.load(key).version is None
    store.close()


# --- the pipeline, which tasks share -----------------------------------------------------------


def test_others_on_the_same_connection(victim: RedisServer, key: str) -> None:
    """Who has time gets its own answer, though the one before it has given up; whoever comes
    later asks on another connection."""

    async def run() -> None:
        store: Any = open_store(f"{victim.url}?{LONG}").to_async()
        for number in range(3):
            await store.apply(f"{key}{number}", claim(f"{number}" * 32), "a")
        victim.pause()
        first = store._transport._main.ready()
        calls = [
            asyncio.ensure_future(store.load(f"{key}{number}", by))
            for number, by in enumerate((soon(), NEVER, soon()))
        ]
        done, waiting = await asyncio.wait(calls, timeout=30, return_when="FIRST_EXCEPTION")
        assert {type(call.exception()) for call in done} == {Unavailable}
        assert calls[1] in waiting
        assert store._transport._main.ready() is None
        later = asyncio.ensure_future(store.load(f"{key}2"))
        victim.resume()
        assert (await calls[1]).record.holders[0].token == "1" * 32
        assert (await later).record.holders[0].token == "2" * 32
        assert store._transport._main.ready() is not first
        async with asyncio.timeout(20):
            await first.closed
        await store.close()

    asyncio.run(run())


def test_a_cancelled_call_comes_out(
    victim: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no answer comes; the answer that comes later is not the next one's."""
    monkeypatch.setattr(pipeline, "DRAIN_S", 0.1)

    async def run() -> None:
        store: Any = open_store(f"{victim.url}?{LONG}").to_async()
        await store.apply(key, Free("x"), "a")  # so that the server knows the script
        await store.apply(key, claim(), "a")
        victim.pause()
        call = asyncio.ensure_future(store.apply(key, Free(claim().token), "b"))
        await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.wait({call}, timeout=30)
        assert call.cancelled()
        victim.resume()
        assert (await store.load(key)).record.holders == ()
        await store.close()

    asyncio.run(run())


def test_an_interrupt_comes_out(victim: RedisServer, key: str) -> None:
    """While a thread waits for an answer, or for a connection."""
    for warm in (True, False):
        store = open_store(f"{victim.url}?{LONG}")
        if warm:
            store.load(key)
        victim.pause()
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            store.apply(key, claim(), "a")
        assert time.monotonic() - started < 30
        timer.join()
        victim.resume()
        assert store.load(key).fault is None
        store.close()


def test_close_while_the_server_is_frozen(victim: RedisServer, key: str) -> None:
    """It does not wait for it, nor for a listener that connects."""
    store = open_store(f"{victim.url}?{LONG}")
    store.load(key)
    victim.pause()
    store.wait(key, None, "t", SECOND // 10)
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 30
    victim.resume()
