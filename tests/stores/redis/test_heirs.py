"""A release on Redis grants the lock to the first in the queue, and tells it so. What the scripts
write is compared with the rules in `test_fast_paths`; that waiters inherit, in `test_heirs` of all
stores."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.core.commands import Claim
from holdfast.core.records import SECOND, Record
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.record_text import mark
from holdfast.stores.registry import open_store
from holdfast.stores.waiting.notices import proof_of, read_notice
from tests.engines.redis import RedisServer, client
from tests.helpers import until

FACES = ("sync", "async")


def acquires(url: str, key: str) -> holdfast.Lease:
    """Take the lock in a client of one's own, which is closed then."""
    with holdfast.connect(url) as locks:
        return locks.acquire(key, ttl=60, timeout=60)


def acquires_in_a_task(url: str, key: str) -> aio.Lease:
    """The same with asyncio."""

    async def acquire() -> aio.Lease:
        async with aio.connect(url) as locks:
            return await locks.acquire(key, ttl=60, timeout=60)

    return asyncio.run(acquire())


@pytest.fixture(params=FACES)
def wait_for(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Future[Any]]]:
    """Starts to wait for a lock beside the test."""
    with ThreadPoolExecutor(1) as pool:
        acquire = acquires if request.param == "sync" else acquires_in_a_task
        yield lambda url, key: pool.submit(acquire, url, key)


def queue_of(store: RedisStore, key: str) -> int:
    """How many wait."""
    return len(record_of(store, key).queue)


def record_of(store: RedisStore, key: str) -> Record:
    """What is there."""
    return store.load(key).record


def beats_of(store: RedisStore, key: str) -> Callable[[], bool]:
    """Returns what tells whether the first in the queue has written its place once more."""
    before = record_of(store, key).queue[0].beat
    return lambda: record_of(store, key).queue[0].beat != before


def listens(server: RedisServer, key: str) -> bool:
    """Whether somebody listens to a channel of the lock for one client."""
    with client(server.port) as redis:
        return bool(redis.pubsub_channels(f"holdfast:{{{key}}}:wake:*"))


def test_the_heir_asks_nothing(victim: RedisServer, wait_for: Any) -> None:
    """Unless its place must be renewed just then. There are two requests: the release, and that of
    the heir, whose client is closed at once."""

    def requests() -> int:
        with client(victim.port) as redis:
            return int(redis.info("commandstats")["cmdstat_evalsha"]["calls"])

    def hand_over(key: str) -> int:
        lease = locks.acquire(key, ttl=60)
        waiting = wait_for(victim.url, key)
        until(lambda: queue_of(store, key) == 1 and listens(victim, key))
        before = requests()
        lease.release()
        assert waiting.result(60).fence > lease.fence
        return requests() - before

    with holdfast.connect(victim.url) as locks:
        store: Any = open_store(victim.url)
        assert any(hand_over(f"k{turn}") == 2 for turn in range(10))
        store.close()


def proved(text: bytes, token: str) -> bytes:
    """A notice as it should be."""
    return text + b" " + proof_of(token.encode(), text)


FORGERIES: list[Callable[[bytes, str], bytes]] = [
    lambda text, token: text,
    lambda text, token: proved(text, "other"),
    lambda text, token: proved(text, token).replace(b" 0 ", b" 1 "),
    lambda text, token: proved(text, token) + b" more",
    lambda text, token: proved(text, token).replace(b" ", b"\xff", 1),
    lambda text, token: b"0 " * 5000,
]


def test_a_forged_notice_gives_nothing(
    server: RedisServer, store: RedisStore, key: str, wait_for: Any
) -> None:
    """Who cannot read the record cannot make anybody believe that it has the lock."""
    with holdfast.connect(server.url) as locks, client(server.port) as redis:
        lease = locks.acquire(key, ttl=60)
        waiting = wait_for(server.url, key)
        until(lambda: queue_of(store, key) == 1 and listens(server, key))
        [channel] = redis.pubsub_channels(f"holdfast:{{{key}}}:wake:*")
        for forge in FORGERIES:
            looked, [place] = beats_of(store, key), record_of(store, key).queue
            at = place.expires_at
            text = b"%b %d %d %d %d 0" % (place.beat.encode(), at, at, at, at + 60 * SECOND)
            assert read_notice(proved(text, place.token), place.token.encode()) is not None
            notice = forge(text, place.token)
            redis.publish(channel, b"1 %b %b" % (mark(place.token), notice))
            until(lambda looked=looked: waiting.done() or looked())  # type: ignore[misc]
            assert not waiting.done()
        lease.release()
        assert waiting.result(60).fence > lease.fence


def test_who_was_killed_inherits_nothing(server: RedisServer, store: RedisStore, key: str) -> None:
    """Its connections are closed with it: the lock is free when its place has run out."""
    program = "import sys, holdfast; holdfast.connect(sys.argv[1]).acquire(sys.argv[2], ttl=600)"
    with holdfast.connect(server.url) as locks:
        lease = locks.acquire(key, ttl=60)
        with subprocess.Popen([sys.executable, "-c", program, server.url, key]) as waiter:
            until(lambda: queue_of(store, key) == 1 and listens(server, key))
            waiter.kill()
        until(lambda: not listens(server, key))
        lease.release()
        assert record_of(store, key).holders == ()
        locks.acquire(key, timeout=60).release()


FORKS = """
import asyncio, os, sys, threading, time, holdfast
from holdfast import aio

async def acquire():
    await aio.connect(sys.argv[1]).acquire("k", ttl=600)

def wait():
    if sys.argv[2] == "async":
        asyncio.run(acquire())
    holdfast.connect(sys.argv[1]).acquire("k", ttl=600)

threading.Thread(target=wait, daemon=True).start()
sys.stdin.readline()
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("face", FACES)
def test_who_was_killed_and_has_a_child_inherits_nothing(victim: RedisServer, face: str) -> None:
    """The child has no copy of the connection that listens."""
    store: Any = open_store(victim.url)
    with holdfast.connect(victim.url) as locks:
        lease = locks.acquire("k", ttl=60)
        run = [sys.executable, "-W", "ignore", "-c", FORKS, victim.url, face]
        pipe = subprocess.PIPE
        with subprocess.Popen(run, stdin=pipe, stdout=pipe, text=True) as waiter:
            assert waiter.stdin is not None
            assert waiter.stdout is not None
            until(lambda: queue_of(store, "k") == 1 and listens(victim, "k"))
            waiter.stdin.write("\n")
            waiter.stdin.flush()
            child = int(waiter.stdout.readline())
            waiter.kill()
        try:
            until(lambda: not listens(victim, "k"))
            lease.release()
            assert record_of(store, "k").holders == ()
        finally:
            os.kill(child, signal.SIGKILL)
    store.close()


def test_a_grant_that_replicas_must_have_is_not_inherited(server: RedisServer, key: str) -> None:
    """With `wait_replicas` whoever acquires waits for them. Nobody would, for an heir."""
    for replicas, inherits in ((0, True), (1, False)):
        store: Any = open_store(server.url, wait_replicas=replicas)
        claim = Claim("t", "o", "exclusive", 987 * SECOND, None, {}, True, SECOND, True)
        packed = store.encoder.command(key, claim, "b").request
        assert (b" %d\r\n" % claim.ttl in packed) == inherits
        store.close()
