"""A server that is killed, restarted, frozen or flushed, and a network that loses things."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

import holdfast
from holdfast import aio
from holdfast.core.commands import Claim, Command, Free, Freed, Granted, Renew
from holdfast.core.effects import Apply
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.stores.redis.scripts import ALL
from holdfast.stores.registry import open_store
from tests.engines.proxy import Proxy
from tests.engines.redis import RedisServer, client

CLAIM = Claim("t" * 32, "o", "exclusive", 60_000_000)
QUICK = "socket_timeout=0.3"


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    """A proxy before the shared server."""
    with Proxy(server.port) as between:
        yield between


def cut(proxy: Proxy) -> None:
    """Cut all connections, and let nobody in."""
    proxy.mode = "refuse"
    proxy.cut()


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    """Wait until something is true."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


# --- replies and requests that are lost -----------------------------------------------------


def test_lost_reply_is_an_unknown_outcome(proxy: Proxy, key: str) -> None:
    """A command whose reply is lost was done; sent again it gives the right answer."""
    with closing(open_store(f"redis://127.0.0.1:{proxy.port}?{QUICK}")) as store:
        commands: tuple[tuple[Command, type], ...] = (
            (CLAIM, Granted),
            (Renew(CLAIM.token), Granted),
            (Free(CLAIM.token), Freed),
        )
        for command, _ in commands:
            store.apply(f"{key}-warm", command, "b")  # or the lost reply would be NOSCRIPT
        for number, (command, verdict) in enumerate(commands):
            proxy.mode = "drop replies"
            with pytest.raises(OutcomeUnknown) as caught:
                store.apply(key, command, f"lost{number}")
            assert isinstance(caught.value.__cause__, RedisTimeoutError)
            proxy.mode = "pass"
            before = store.load(key)
            applied = store.apply(key, command, f"again{number}")
            assert isinstance(applied.verdict, verdict), command
            if isinstance(command, Claim):
                assert applied.version == before.version
                assert isinstance(applied.verdict, Granted)
                assert applied.verdict.holder.beat == "lost0"


def test_lost_replies_to_a_batch_are_unknown_outcomes(proxy: Proxy, key: str) -> None:
    """Nobody knows which of them were done: here, all."""
    with closing(open_store(f"redis://127.0.0.1:{proxy.port}?{QUICK}")) as store:
        keys = [f"{key}-{number}" for number in range(3)]
        store.apply_many([Apply(one, CLAIM, "b") for one in keys])
        store.apply(keys[0], Renew(CLAIM.token), "b")  # or the lost reply would be NOSCRIPT
        proxy.mode = "drop replies"
        beats = store.apply_many([Apply(one, Renew(CLAIM.token), "lost") for one in keys])
        assert [type(one) for one in beats] == [OutcomeUnknown] * 3
        proxy.mode = "pass"
        assert {store.load(one).record.holders[0].beat for one in keys} == {"lost"}


def test_lost_request_is_an_unknown_outcome(proxy: Proxy, key: str) -> None:
    """A command that never arrives is not known to have failed, and was not done."""
    with closing(open_store(f"redis://127.0.0.1:{proxy.port}?{QUICK}")) as store:
        store.load(key)
        proxy.mode = "drop requests"
        with pytest.raises(OutcomeUnknown):
            store.apply(key, CLAIM, "b")
        proxy.mode = "pass"
        assert store.load(key).version is None


def test_no_connection_means_not_done(proxy: Proxy, key: str) -> None:
    """A server that accepts nobody is unavailable: surely nothing was done."""
    cut(proxy)
    with closing(open_store(f"redis://127.0.0.1:{proxy.port}?{QUICK}")) as store:
        with pytest.raises(Unavailable):
            store.apply(key, CLAIM, "b")


def test_async_outcomes(proxy: Proxy, key: str) -> None:
    """The asyncio face tells lost replies from connections that were never made, too."""

    async def run() -> None:
        store = open_store(f"redis://127.0.0.1:{proxy.port}?{QUICK}").to_async()
        await store.load(key)
        await store.apply(f"{key}-warm", CLAIM, "b")
        proxy.mode = "drop replies"
        calls = [store.apply(key, CLAIM, f"b{i}") for i in range(3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 3
        cut(proxy)
        with pytest.raises(Unavailable):
            await store.apply(key, CLAIM, "c")
        proxy.mode = "pass"
        applied = await store.apply(key, CLAIM, "d")
        assert isinstance(applied.verdict, Granted)
        assert applied.verdict.holder.beat == "b0"
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("mode", ["reset replies", "halve replies"])
def test_connection_that_breaks_in_a_reply(proxy: Proxy, key: str, mode: Any, face: str) -> None:
    """A reply that came in part is as good as none, and none of it is left for the next."""
    url = f"redis://127.0.0.1:{proxy.port}"
    commands: tuple[tuple[Command, type], ...] = (
        (CLAIM, Granted),
        (Renew(CLAIM.token), Granted),
        (Free(CLAIM.token), Freed),
    )

    async def run() -> None:
        store: Any = open_store(url)
        if face == "async":
            store = store.to_async()
        for command, _ in commands:
            await answer(store.apply(f"{key}-warm", command, "b"))
        for number, (command, verdict) in enumerate(commands):
            proxy.mode = mode
            with pytest.raises(OutcomeUnknown):
                await answer(store.apply(key, command, f"lost{number}"))
            proxy.mode = "pass"
            applied = await answer(store.apply(key, command, f"again{number}"))
            assert isinstance(applied.verdict, verdict), command
        await answer(store.close())

    asyncio.run(run())


async def answer(called: Any) -> Any:
    """What a call of either face gives."""
    return await called if asyncio.iscoroutine(called) else called


def test_lease_through_lost_replies(proxy: Proxy, server: RedisServer, key: str) -> None:
    """Acquire and release end well though replies get lost on the way."""
    url = f"redis://127.0.0.1:{proxy.port}?{QUICK}"
    with closing(holdfast.connect(url)) as locks, closing(holdfast.connect(server.url)) as other:
        for round_ in range(3):
            lose_for(proxy, 0.4)
            lease = locks.acquire(key, ttl=20, timeout=20)
            assert other.try_acquire(key) is None
            lose_for(proxy, 0.4)
            assert lease.release() is True, round_
            with other.acquire(key, timeout=0):
                pass


def lose_for(proxy: Proxy, seconds: float) -> None:
    """Lose replies for a while."""
    proxy.mode = "drop replies"
    threading.Timer(seconds, setattr, [proxy, "mode", "pass"]).start()


# --- a server that goes and comes back ------------------------------------------------------


def test_scripts_survive_a_flush(server: RedisServer, store: Any, key: str) -> None:
    """After SCRIPT FLUSH every script is brought along once, and then known again."""
    with client(server.port) as redis:
        redis.script_flush()
        assert isinstance(store.apply(key, CLAIM, "b").verdict, Granted)
        assert redis.script_exists(ALL[0].sha.decode()) == [True]
        redis.script_flush()
        assert store.load(key).record.holders
        assert isinstance(store.apply(key, Free(CLAIM.token), "c").verdict, Freed)


def test_restart_while_held_and_waited_for(victim: RedisServer, key: str) -> None:
    """A restart without persistence loses the lease; a waiter gets in, and the fence grows."""
    with closing(holdfast.connect(victim.url, ttl=2)) as locks:
        lease = locks.acquire(key)
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(locks.acquire(key, timeout=30)))
        waiting.start()
        time.sleep(0.1)
        victim.restart()
        waiting.join(30)
        assert got[0].fence > lease.fence
        wait_until(lease.lost.is_set)
        assert got[0].release() is True


def test_idle_connections_are_not_trusted_after_a_restart(victim: RedisServer, key: str) -> None:
    """A connection that the server closed while it was idle costs nothing, not even a doubt."""
    with closing(open_store(victim.url)) as store:
        store.apply(key, CLAIM, "b")
        victim.restart()
        time.sleep(0.6)
        assert isinstance(store.apply(key, CLAIM, "c").verdict, Granted)


def test_idle_connections_of_a_process_with_many_files(victim: RedisServer, key: str) -> None:
    """They are used again, although `select` cannot look at files with such high numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        nowhere = files.enter_context(open(os.devnull, "rb"))  # noqa: PTH123
        for _ in range(1100):
            files.callback(os.close, os.dup(nowhere.fileno()))
        redis = files.enter_context(client(victim.port))
        store = files.enter_context(closing(open_store(victim.url)))
        store.apply(key, CLAIM, "b")
        before = redis.info("stats")["total_connections_received"]
        time.sleep(0.6)
        store.apply(key, CLAIM, "c")
        assert redis.info("stats")["total_connections_received"] == before


def test_killed_server_is_unavailable(victim: RedisServer, key: str) -> None:
    """A server that is gone is named in the error."""
    with closing(open_store(victim.url)) as store:
        store.load(key)
        victim.kill()
        for _ in range(2):
            with pytest.raises((Unavailable, OutcomeUnknown), match=str(victim.port)):
                store.apply(key, CLAIM, "b")


@pytest.mark.parametrize("how", ["SIGSTOP", "CLIENT PAUSE"])
def test_frozen_server(victim: RedisServer, key: str, how: str) -> None:
    """While a server is frozen nothing is known; afterwards one holder is left."""
    with closing(holdfast.connect(victim.url + "?" + QUICK, ttl=2)) as locks:
        with locks.acquire(key):
            pass
        freeze(victim, how)
        with pytest.raises(HoldfastError) as caught:
            locks.acquire(key, timeout=0.5)
        assert isinstance(caught.value, OutcomeUnknown | Unavailable)
        if how == "SIGSTOP":
            victim.resume()
        with locks.acquire(key, timeout=25) as lease:
            assert len(locks.show(key).holders) == 1
            assert lease.held


def freeze(victim: RedisServer, how: str) -> None:
    """Let it answer nothing for two seconds, or until it is resumed."""
    if how == "SIGSTOP":
        victim.pause()
        return
    with client(victim.port) as redis:
        redis.client_pause(2000)


# --- the listener ---------------------------------------------------------------------------


@pytest.mark.parametrize("face", ["sync", "async"])
def test_wake_up_after_the_listener_was_cut_off(
    proxy: Proxy, server: RedisServer, key: str, face: str
) -> None:
    """A waiter whose listening connection broke is woken all the same, not at the expiry."""
    with closing(holdfast.connect(server.url)) as other:
        lease = other.acquire(key, ttl=300)
        thread, got = start_waiting(face, f"redis://127.0.0.1:{proxy.port}", key)
        time.sleep(0.3)
        cut(proxy)
        time.sleep(0.1)
        proxy.mode = "pass"
        time.sleep(0.3)
        lease.release()
        thread.join(10)
        assert got


def start_waiting(face: str, url: str, key: str) -> tuple[threading.Thread, list[int]]:
    """Acquire in a thread, through either face."""
    got: list[int] = []

    def wait() -> None:
        with closing(holdfast.connect(url)) as locks, locks.acquire(key, timeout=20) as lease:
            got.append(lease.fence)

    async def wait_async() -> None:
        locks = aio.connect(url)
        async with locks.acquire(key, timeout=20) as lease:
            got.append(lease.fence)
        await locks.close()

    target = wait if face == "sync" else lambda: asyncio.run(wait_async())
    thread = threading.Thread(target=target)
    thread.start()
    return thread, got
