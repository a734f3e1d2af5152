"""Sentinel: the master is killed while leases are held and waited for. And WAIT."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Cut

import holdfast
from holdfast import aio
from holdfast.core.commands import Claim, Granted
from holdfast.errors import OutcomeUnknown
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisReplica, RedisServer, SentinelSetup, client
from tests.engines.shared import shared


@pytest.fixture
def setup() -> Iterator[SentinelSetup]:
    """A master, a replica and Sentinels of one's own."""
    shared(RedisServer)  # skips or fails where there is none
    engines = SentinelSetup()
    try:
        engines.start()
        yield engines
    finally:
        engines.stop()


@pytest.fixture
def replica(victim: RedisServer) -> Iterator[RedisReplica]:
    """A replica of the victim."""
    with RedisReplica(victim.port) as engine:
        assert isinstance(engine, RedisReplica)
        with client(victim.port) as redis:
            redis.set("seen", 1)
            assert redis.wait(1, 10_000) == 1
        yield engine


def test_master_is_killed(setup: SentinelSetup) -> None:
    """A held lease is kept through a failover, a waiter gets it in turn, the fences grow."""
    with (
        closing(holdfast.connect(setup.url, ttl=20, socket_timeout=1)) as locks,
        closing(holdfast.connect(setup.url, ttl=20, socket_timeout=1)) as others,
    ):
        before = locks.acquire("held", ttl=20)
        with locks.acquire("free") as freed:
            pass
        with client(setup.master.port) as redis:
            assert redis.wait(1, 5000) == 1  # or this failover may forget it, see the docs
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(others.acquire("held", timeout=60)))
        waiting.start()
        time.sleep(0.2)
        setup.master.kill()
        after = locks.acquire("free", timeout=60)
        assert after.fence > freed.fence
        before.renew()
        assert before.held
        assert not got
        assert before.release() is True
        waiting.join(60)
        assert got[0].fence > before.fence
        assert others.show("held").holders[0].fence == got[0].fence


def test_fence_grows_though_the_failover_forgot(setup: SentinelSetup) -> None:
    """A grant that the replica never saw is forgotten; the next fence is larger all the same."""

    async def run() -> None:
        locks = aio.connect(setup.url, ttl=20, socket_timeout=1)
        async with locks.acquire("k") as first:
            pass
        with client(setup.replica.port) as redis:
            redis.replicaof("127.0.0.1", 1)  # cut off, for a few seconds
        forgotten = [await locks.acquire(f"k{i}") for i in range(3)]
        setup.master.kill()
        replica_becomes_master(setup)
        with client(setup.replica.port) as redis:
            assert not redis.exists(*(f"holdfast:{{{lease.key}}}" for lease in forgotten))
        async with asyncio.timeout(60):
            for lease in forgotten:
                heir = await locks.acquire(lease.key)
                assert heir.fence > lease.fence
            async with locks.acquire("k") as again:
                assert again.fence > first.fence
        await locks.close()

    asyncio.run(run())


def replica_becomes_master(setup: SentinelSetup) -> None:
    """Wait until the Sentinels have made the replica the master."""
    ends_at = time.monotonic() + 40
    while time.monotonic() < ends_at:
        # The Sentinels cut off whoever is connected when they do it.
        with suppress(Cut), client(setup.replica.port) as redis:
            if redis.role()[0] in ("master", b"master"):
                return
        time.sleep(0.1)
    raise AssertionError("no failover")


# --- WAIT -----------------------------------------------------------------------------------

CLAIM = Claim("t" * 32, "o", "exclusive", 60_000_000)


def test_wait_for_a_replica(victim: RedisServer, replica: RedisReplica, key: str) -> None:
    """With wait_replicas a grant has reached that many replicas when it is reported."""
    with closing(open_store(victim.url, wait_replicas=1)) as store:
        assert isinstance(store.apply(key, CLAIM, "b").verdict, Granted)
        with client(replica.port) as redis:
            assert redis.exists(f"holdfast:{{{key}}}")


def test_too_few_replicas(victim: RedisServer, replica: RedisReplica, key: str) -> None:
    """A grant that too few replicas have is not reported as one, not even the second time."""
    with closing(open_store(victim.url, wait_replicas=1, wait_s=0.2)) as store:
        store.apply(f"{key}-warm", CLAIM, "b")
        replica.pause()
        for beat in ("b", "c"):
            with pytest.raises(OutcomeUnknown, match="0 of 1"):
                store.apply(key, CLAIM, beat)
        replica.resume()
        applied = store.apply(key, CLAIM, "d")
        assert isinstance(applied.verdict, Granted)
        assert applied.verdict.holder.beat == "b"


def test_lease_waits_for_replicas(victim: RedisServer, replica: RedisReplica, key: str) -> None:
    """An acquire goes on until the replicas have it, in both faces."""
    options: dict[str, Any] = {"wait_replicas": 1, "wait_s": 0.2}
    with closing(holdfast.connect(victim.url, ttl=20, **options)) as locks:
        replica.pause()
        threading.Timer(0.5, replica.resume).start()
        with locks.acquire(key, timeout=20) as lease:
            assert lease.held

    async def run() -> None:
        locks = aio.connect(victim.url, **options)
        async with locks.acquire(key, timeout=20) as lease:
            await lease.renew()
        await locks.close()

    asyncio.run(run())
