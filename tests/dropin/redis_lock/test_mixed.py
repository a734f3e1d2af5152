"""Old and new workers on one lock; and other kinds of client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockNotOwnedError, MovedError, NoPermissionError

from holdfast.dropin.redis_lock import Lock
from holdfast.dropin.redis_lock.asyncio import Lock as AsyncLock
from tests.dropin.redis_lock import counter
from tests.dropin.redis_lock.lab import Lab
from tests.engines.base import free_port, require
from tests.engines.redis import RedisServer

ROOT = Path(__file__).parents[3]
TIMES = 60


def test_old_and_new_workers_count_together(server: RedisServer) -> None:
    """Processes with all four kinds of lock lose no increment."""
    client = redis.Redis(port=server.port)
    client.flushdb()
    kinds = [("theirs", "sync"), ("ours", "sync"), ("theirs", "async"), ("ours", "async")]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", counter.__name__, str(server.port), *kind, str(TIMES)], cwd=ROOT
        )
        for kind in kinds
    ]
    assert [worker.wait(90) for worker in workers] == [0] * len(kinds)
    assert int(client.get("number") or 0) == TIMES * len(kinds)
    client.close()


def test_each_sees_the_others_lock(ours: Lab) -> None:
    """Ours respects theirs, theirs respects ours, and each can release by the token."""
    theirs = ours.raw.lock("foo", timeout=5)
    lock = ours.lock(timeout=5)
    assert theirs.acquire()
    assert ours.do(lock.acquire(blocking=False)) is False
    theirs.release()
    assert ours.do(lock.acquire(blocking=False)) is True
    assert theirs.acquire(blocking=False) is False
    with pytest.raises(LockNotOwnedError):
        theirs.do_release(b"guess")
    theirs.do_release(lock.local.token)
    assert ours.do(lock.owned()) is False


class ClusterNode(RedisServer):
    """A node of a cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.bus = free_port()

    def command(self) -> list[str]:
        return [*super().command(), "--cluster-enabled", "yes", "--cluster-port", str(self.bus)]

    def ask(self, *command: object) -> str:
        """What it answers to a CLUSTER command."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            client.set_response_callback("CLUSTER INFO", str)
            return str(client.execute_command("CLUSTER", *command))


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[ClusterNode]]:
    """A cluster of two nodes, with half of the slots each."""
    require(RedisServer)
    nodes = [ClusterNode(), ClusterNode()]
    try:
        for node, first in zip(nodes, (0, 8192), strict=True):
            node.start()
            node.ask("ADDSLOTSRANGE", first, first + 8191)
        nodes[0].ask("MEET", "127.0.0.1", nodes[1].port, nodes[1].bus)
        while not all("ok" in node.ask("INFO").splitlines()[0] for node in nodes):
            time.sleep(0.05)
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def _move(nodes: list[ClusterNode], name: str) -> None:
    """Give the slot of this key to the other node; nobody tells the clients."""
    slot = nodes[0].ask("KEYSLOT", name)
    ids = [node.ask("MYID") for node in nodes]
    at_first = redis.Redis(port=nodes[0].port)
    try:
        at_first.exists(name)
        owner = 0
    except MovedError:
        owner = 1
    finally:
        at_first.close()
    for node in (nodes[1 - owner], nodes[owner]):
        node.ask("SETSLOT", slot, "NODE", ids[1 - owner])


@pytest.mark.parametrize("moved", [False, True])
def test_a_cluster_client(cluster: list[ClusterNode], moved: bool) -> None:
    """`RedisCluster.lock` takes the class too; slots may move."""
    client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    if moved:
        _move(cluster, "foo")
    lock = client.lock("foo", timeout=5, lock_class=Lock)
    with lock:
        assert lock.extend(5)
        assert client.lock("foo", lock_class=Lock).acquire(blocking=False) is False
    assert client.get("foo") is None
    client.close()


@pytest.mark.parametrize("moved", [False, True])
def test_an_asyncio_cluster_client(cluster: list[ClusterNode], moved: bool) -> None:
    """The same, awaited."""

    async def run() -> None:
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        await client.initialize()
        if moved:
            _move(cluster, "foo")
        lock = client.lock("foo", timeout=5, lock_class=AsyncLock)
        async with lock:
            assert await lock.extend(5)
            other = client.lock("foo", lock_class=AsyncLock)
            assert await other.acquire(blocking=False) is False
        assert await client.get("foo") is None
        await client.aclose()

    asyncio.run(run())


def test_a_client_with_a_single_connection(ours: Lab, server: RedisServer) -> None:
    """Its connection is its own; we do not take another one."""
    client = ours.new_client(server.port, single_connection_client=True)
    lock = ours.lock(client=client, timeout=5)
    assert ours.do(lock.acquire()) is True
    assert ours.do(lock.extend(5)) is True
    ours.do(lock.release())
    ours.do(client.close() if ours.face == "sync" else client.aclose())


def test_a_user_who_may_not_publish(ours: Lab, server: RedisServer) -> None:
    """push=True needs rights on a channel; without them it is polling, and nothing breaks."""
    ours.raw.acl_setuser(
        "muted", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["foo"],
        reset_channels=True,
    )  # fmt: skip
    client = ours.new_client(server.port, username="muted", password="secret")
    lock = ours.lock(client=client, timeout=5, push=True, sleep=0.05)
    ours.raw.set("foo", "x", px=300)
    assert ours.do(lock.acquire(blocking_timeout=10)) is True
    ours.do(lock.release())
    assert ours.raw.get("foo") is None
    with pytest.raises(NoPermissionError):
        ours.do(ours.lock("bar", client=client).acquire())
    ours.do(client.close() if ours.face == "sync" else client.aclose())
