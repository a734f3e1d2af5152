"""A server that hangs up on idle connections: the next call does not notice, or says the truth."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

import holdfast
from holdfast import OutcomeUnknown, Unavailable, aio
from holdfast.core.commands import Claim, Granted
from holdfast.core.records import SECOND
from holdfast.stores.redis import RedisStore
from holdfast.stores.registry import open_store
from tests.engines.base import free_port
from tests.engines.redis import RedisCluster, RedisServer, SentinelSetup, client
from tests.engines.shared import shared
from tests.helpers import unique

Patch = pytest.MonkeyPatch
FACES = pytest.mark.parametrize("face", ["sync", "async"])
SETUPS: list[type[Any]] = [RedisServer, SentinelSetup, RedisCluster]


def hang_up(setup: Any) -> None:
    """Let the servers close the connections of all clients."""
    servers = getattr(setup, "nodes", None) or [getattr(setup, "master", setup)]
    for server in servers:
        with client(server.port) as redis:
            redis.client_kill_filter(_type="normal", skipme=True)


@FACES
@pytest.mark.parametrize("kind", SETUPS, ids=lambda kind: kind.__name__)
def test_calls_after_the_server_hung_up(kind: type[Any], face: str) -> None:
    """They are served as ever, though the last call was a moment ago."""
    setup, key = shared(kind), unique()

    async def run() -> None:
        locks: Any = holdfast.connect(setup.url) if face == "sync" else aio.connect(setup.url)
        calls: list[Callable[[], Any]] = [
            lambda: locks.try_acquire(key, ttl=30),
            lambda: locks.show(key),
            lambda: list_all(locks, key),
            lambda: locks.evict(key),
        ]
        await answer(locks.show(key))
        for call in calls:
            hang_up(setup)  # blocks: an event loop has no chance to notice
            assert await answer(call()) is not None
        lease = await answer(locks.try_acquire(key, ttl=30))
        hang_up(setup)
        assert await answer(lease.release()) is True
        await answer(locks.close())

    asyncio.run(run())


async def answer(called: Any) -> Any:
    """What a call of either face gives."""
    return await called if asyncio.iscoroutine(called) else called


def list_all(locks: Any, prefix: str) -> Any:
    """The listing, of either face."""
    found = locks.list(prefix)
    if not hasattr(found, "__aiter__"):
        return list(found)

    async def gather() -> list[Any]:
        return [one async for one in found]

    return gather()


@FACES
def test_idle_for_longer_than_the_server_likes(victim: RedisServer, key: str, face: str) -> None:
    """The server's `timeout` is over, or it was restarted."""

    async def run() -> None:
        store: Any = open_store(victim.url)
        store = store if face == "sync" else store.to_async()
        await answer(store.load(key))
        victim.restart()
        applied = await answer(store.apply(key, claim("a"), "b"))
        assert isinstance(applied.verdict, Granted)
        await answer(store.close())

    asyncio.run(run())


def test_a_look_at_a_connection_takes_no_trip(server: RedisServer, key: str) -> None:
    """Nothing is sent to the server but what was asked for, on one connection."""
    with closing(open_store(server.url)) as store, client(server.port) as redis:
        store.load(key)
        before = redis.info("stats")
        for _ in range(10):
            store.load(key)
        after = redis.info("stats")
    commands = after["total_commands_processed"] - before["total_commands_processed"]
    assert commands <= 40 + 2  # EVALSHA, TIME, GET and LRANGE; and the INFO that was asked for
    assert after["total_connections_received"] == before["total_connections_received"]


# --- a connection that breaks after it was looked at ----------------------------------------


class Breaking:
    """Passes connections on to a server. Of the requests that come when it is told so, it lets
    through as many as it shall; then it resets the connection, before the request or after."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.breaks = 0
        self.carried_out = True
        self.then_gone = False  # and nobody can connect any more
        self.requests = 0
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", self.port))

    @contextmanager
    def running(self) -> Iterator[Breaking]:
        """Until the end of the block."""
        threading.Thread(target=self._accept, daemon=True).start()
        yield self
        self.go()

    def go(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends a thread that waits in `accept`
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            while True:
                ready, _, _ = select.select([near, far], [], [])
                source = near if near in ready else far
                data = source.recv(65536)
                if not data:
                    return
                if source is near:
                    self.requests += 1
                    if self.breaks:
                        self.breaks -= 1
                        if self.carried_out:
                            far.sendall(data)
                            far.recv(65536)
                        if self.then_gone:
                            self.go()
                        return
                (far if source is near else near).sendall(data)


@pytest.fixture
def breaking(server: RedisServer) -> Iterator[Breaking]:
    """In front of the shared server."""
    with Breaking(server.port).running() as between:
        yield between


@contextmanager
def opened(breaking: Breaking) -> Iterator[RedisStore]:
    """A store that goes through it, and has a connection."""
    store = open_store(f"redis://127.0.0.1:{breaking.port}")
    assert isinstance(store, RedisStore)
    with closing(store):
        store.load("k")
        yield store


READS: dict[str, Callable[[Any], Any]] = {
    "load": lambda store: store.load("k"),
    "scan": lambda store: store.scan("k", None, 10),
    "version": lambda store: store._version("k"),
}


@FACES
@pytest.mark.parametrize("read", READS)
def test_a_look_is_repeated(breaking: Breaking, read: str, face: str) -> None:
    """On a new connection, once; after that there is no answer, but no doubt either."""

    async def run() -> None:
        with opened(breaking) as blocking:
            store: Any = blocking if face == "sync" else blocking.to_async()
            await answer(store.load("k"))
            breaking.breaks = 1
            await answer(READS[read](store))
            breaking.breaks = 1000
            with pytest.raises(Unavailable):
                await answer(READS[read](store))
            breaking.breaks = 0
            if store is not blocking:
                await store.close()

    asyncio.run(run())


@FACES
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_claim_finds_its_token(
    breaking: Breaking, key: str, face: str, carried_out: bool
) -> None:
    """Whether the one whose answer was lost had been carried out or not."""
    url = f"redis://127.0.0.1:{breaking.port}"
    breaking.carried_out = carried_out

    async def run() -> None:
        locks: Any = holdfast.connect(url) if face == "sync" else aio.connect(url)
        await answer(locks.show(key))
        breaking.breaks = 1
        lease = await answer(locks.try_acquire(key))
        assert lease is not None
        assert (await answer(locks.show(key))).holders[0].fence == lease.fence
        breaking.breaks = 1
        assert await answer(lease.release()) is True
        await answer(locks.close())

    asyncio.run(run())


CALLS: dict[str, Callable[[Any, Any, str, str], Any]] = {
    "try_acquire": lambda locks, lease, ticket, key: locks.try_acquire(key + "-other"),
    "acquire": lambda locks, lease, ticket, key: locks.acquire(key + "-other", timeout=1),
    "release": lambda locks, lease, ticket, key: lease.release(),
    "hand_over": lambda locks, lease, ticket, key: lease.hand_over(),
    "take": lambda locks, lease, ticket, key: locks.take(ticket),
    "renew": lambda locks, lease, ticket, key: lease.renew(),
}


@FACES
@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_the_server_is_gone_after_the_first_request(
    breaking: Breaking, monkeypatch: Patch, key: str, call: str, face: str, carried_out: bool
) -> None:
    """Nobody can know whether that one was carried out, however sure the later ones are."""
    monkeypatch.setattr("holdfast.runtime.cleaning.CLEAN_UP_FOR", SECOND // 10)
    url = f"redis://127.0.0.1:{breaking.port}"

    async def run() -> None:
        connect: Any = holdfast.connect if face == "sync" else aio.connect
        locks = connect(url, request_timeout=0.5)
        offered = await answer(locks.acquire(key + "-offered"))
        ticket = await answer(offered.hand_over())
        lease = await answer(locks.acquire(key, ttl=300))
        breaking.carried_out, breaking.then_gone, breaking.breaks = carried_out, True, 1
        with pytest.raises(OutcomeUnknown):
            await answer(CALLS[call](locks, lease, ticket, key))
        await answer(locks.close())

    asyncio.run(run())


def test_a_script_is_not_repeated_by_the_store(breaking: Breaking, key: str) -> None:
    """Only who knows what it means may do that."""
    with opened(breaking) as store:
        breaking.breaks, before = 1, breaking.requests
        with pytest.raises(OutcomeUnknown):
            store.apply(key, claim("a"), "b")
        assert breaking.requests == before + 1


def test_what_was_not_sent_is_sent_elsewhere(server: RedisServer, store: Any, key: str) -> None:
    """A connection that cannot be written to any more has surely carried nothing out."""
    store.load(key)
    connection = store._transport._main._idle[0]
    connection._readable = lambda timeout: ()  # as if it had broken right after that look
    connection.theirs._sock.shutdown(socket.SHUT_RDWR)
    assert isinstance(store.apply(key, claim("a"), "b").verdict, Granted)


def claim(token: str) -> Claim:
    """For oneself."""
    return Claim(token, "me", "exclusive", 30_000_000)
