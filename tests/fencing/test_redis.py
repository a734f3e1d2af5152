"""A pipeline behind a gate: on one server, through Sentinel, and in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster as ClusterClient
from redis.sentinel import Sentinel

import holdfast
from holdfast import LeaseLost, StaleFence, UsageError, fencing
from holdfast.fencing import Fence, aio
from tests.engines.redis import RedisCluster, RedisServer, SentinelSetup, ValkeyServer
from tests.engines.shared import shared
from tests.helpers import memory_locks, unique

SITES = ("server", "valkey", "sentinel", "cluster")


def client_of(kind: str, **options: Any) -> Any:
    """A client of the application's."""
    if kind == "cluster":
        return ClusterClient(host="127.0.0.1", port=shared(RedisCluster).nodes[0].port, **options)
    if kind == "sentinel":
        hosts = [("127.0.0.1", each.port) for each in shared(SentinelSetup).sentinels]
        sentinel: Any = Sentinel
        return sentinel(hosts).master_for("locks", **options)
    server = shared(RedisServer if kind == "server" else ValkeyServer)
    return redis.Redis(port=server.port, **options)


@pytest.fixture(params=SITES)
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Every kind of place."""
    found = client_of(request.param)
    yield found
    found.close()


@pytest.fixture
def server() -> Iterator[Any]:
    """One server."""
    found = client_of("server")
    yield found
    found.close()


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster."""
    found = client_of("cluster")
    yield found
    found.close()


def test_a_pipeline_behind_a_gate(client: Any) -> None:
    """Commands run in order and as one; a larger fence closes the gate for smaller ones."""
    key = unique()
    name = f"{{{key}}}:data"
    for fence in (5, 5, 2**62):
        with fencing.redis.pipeline(client, Fence(key, fence)) as p:
            p.set(name, fence).hset(f"{name}:h", mapping={"a": 1, "b": fence})
            p.get(name)
            p.get(f"{name}:nothing")
        assert p.replies[2:] == [b"%d" % fence, None]
    with (
        pytest.raises(StaleFence) as refused,
        fencing.redis.pipeline(client, Fence(key, 2**62 - 1)) as p,
    ):
        p.delete(name)
    error = refused.value
    assert (error.key, error.fence, error.remembered) == (key, 2**62 - 1, 2**62)
    assert client.get(name) == b"%d" % 2**62
    assert client.hget(f"{name}:h", "b") == b"%d" % 2**62


def test_asyncio() -> None:
    """The same on a server and in a cluster, awaited."""

    async def story(client: Any) -> None:
        key = unique()
        name = f"{{{key}}}:data"
        async with aio.redis.pipeline(client, Fence(key, 9)) as p:
            p.set(name, "x").zadd(f"{name}:z", {"m": 1})
        with pytest.raises(StaleFence):
            await aio.redis.pipeline(client, Fence(key, 8)).delete(name).execute()
        with pytest.raises(StaleFence):
            await aio.redis.admit(client, Fence(key, 8))
        assert await client.get(name) == b"x"
        await client.aclose()

    async def stories() -> None:
        await story(redis.asyncio.Redis(port=shared(RedisServer).port))
        port = shared(RedisCluster).nodes[0].port
        await story(AsyncRedisCluster(host="127.0.0.1", port=port))

    asyncio.run(stories())


def test_a_client_that_decodes(server: Any) -> None:
    """Replies come as the client reads them."""
    key, text = unique(), client_of("server", decode_responses=True)
    with fencing.redis.pipeline(text, Fence(key, 3)) as p:
        p.set(key, "é").get(key)
    assert p.replies == ["OK", "é"]
    with pytest.raises(StaleFence):
        fencing.redis.admit(text, Fence(key, 2))
    text.close()


def test_a_command_that_fails(server: Any) -> None:
    """As in any pipeline the others are done; the error is the command's own."""
    key = unique()
    server.set(key, "text")
    p = fencing.redis.pipeline(server, Fence(key, 1))
    p.hset(key, "a", 1)
    p.set(f"{key}:other", 1)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        p.execute()
    assert server.get(f"{key}:other") == b"1"


def test_an_exception_in_the_block(server: Any) -> None:
    """Nothing is sent."""
    key = unique()

    def breaks() -> None:
        with fencing.redis.pipeline(server, Fence(key, 1)) as p:
            p.set(key, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert server.exists(key, f"holdfast:fence:{{{key}}}") == 0


def test_a_server_that_forgot_the_script(server: Any) -> None:
    """It is sent again."""
    server.script_flush()
    fencing.redis.admit(server, Fence(unique(), 1))


def test_other_slots_of_a_cluster(cluster: Any) -> None:
    """A clear error before anything is written, also for commands with several keys."""
    key = unique()
    inside = f"{{{key}}}:a"
    for command in (
        ("SET", "elsewhere", 1),
        ("MSET", inside, 1, "elsewhere", 2),
        ("ZUNIONSTORE", inside, 1, "elsewhere"),
        ("XGROUP", "CREATE", "elsewhere", "g", "$"),
    ):
        p = fencing.redis.pipeline(cluster, Fence(key, 1)).set(inside, 1)
        p.execute_command(*command)
        with pytest.raises(UsageError, match="different slots"):
            p.execute()
        assert cluster.get(inside) is None
    with fencing.redis.pipeline(cluster, Fence(key, 1), gate="{shop}:gate") as p:
        p.set("{shop}:total", 1)
        p.mset({"{shop}:a": 1, "{shop}:b": 2})
        p.ping()
    with pytest.raises(StaleFence):
        fencing.redis.admit(cluster, Fence(key, 0), gate="{shop}:gate")
    cluster.delete("{shop}:gate")


def test_a_key_with_a_hash_tag_of_its_own(cluster: Any) -> None:
    """The gate is in the slot of the tag."""
    tag = unique()
    with fencing.redis.pipeline(cluster, Fence(f"{{{tag}}}:orders", 1)) as p:
        p.set(f"{{{tag}}}:total", 1)


def test_every_key_has_a_gate_of_its_own(cluster: Any) -> None:
    """A key in braces is another key, whose holder is not stale because of this one's."""
    key = unique()
    keys = [key, f"{{{key}}}", f"{{{{{key}}}}}", f":{{{key}}}", f"}}{key}", f"{{:}}}}{key}"]
    for fence, one in enumerate(reversed(keys)):
        fencing.redis.admit(cluster, Fence(one, 100 - fence))
    assert len({fencing.redis.pipeline(cluster, Fence(one, 1)).gate for one in keys}) == len(keys)


@pytest.mark.parametrize("value", ["text", ["a", "list"]])
def test_a_gate_that_is_not_ours(value: Any, server: Any) -> None:
    """It is left alone, and nothing is written."""
    name, other = unique(), unique()
    if isinstance(value, str):
        server.set(name, value)
    else:
        server.rpush(name, *value)
    with pytest.raises(holdfast.ForeignStore, match="not a gate"):
        fencing.redis.pipeline(server, Fence("k", 1), gate=name).set(other, 1).execute()
    assert server.exists(other) == 0


def test_bad_input(server: Any) -> None:
    """Leases that are over, what is no client, the other face's client, too many arguments."""
    with memory_locks() as locks:
        lease = locks.acquire(unique())
        p = fencing.redis.pipeline(server, lease)
        p.set(lease.key, 1)
        lease.release()
        with pytest.raises(LeaseLost):
            p.execute()
        with pytest.raises(LeaseLost):
            fencing.redis.pipeline(server, lease)
        assert server.get(lease.key) is None
    with pytest.raises(UsageError, match="client of redis-py"):
        fencing.redis.admit(object(), Fence("k", 1))
    with pytest.raises(UsageError, match="client of redis-py"):
        fencing.redis.admit(redis.asyncio.Redis(), Fence("k", 1))
    with pytest.raises(UsageError, match="split it"):
        fencing.redis.pipeline(server, Fence("k", 1)).rpush("l", *range(8000))


def test_many_commands(server: Any) -> None:
    """Thousands fit into one script."""
    key = unique()
    with fencing.redis.pipeline(server, Fence(key, 1)) as p:
        for number in range(20_000):
            p.rpush(key, number)
        p.rpush(key, *range(6000))
    assert len(p.replies) == 20_001
    assert server.llen(key) == 26_000
