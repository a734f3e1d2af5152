"""A cluster whose slots move while locks are held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from holdfast.core.commands import Claim, Free, Freed, Granted, Renew
from holdfast.core.records import NEVER
from holdfast.stores.redis.protocol import slot_of
from holdfast.stores.redis.record_text import Names
from holdfast.stores.registry import open_store
from tests.engines.base import require
from tests.engines.redis import RedisCluster, RedisServer, client
from tests.engines.shared import shared

CLAIM = Claim("t" * 32, "o", "exclusive", 60_000_000)


class Move:
    """One slot on its way from a master to another, step by step."""

    def __init__(self, cluster: RedisCluster, key: str, *, to_newest: bool = False) -> None:
        self.name = Names("holdfast").record(key)
        self.slot = slot_of(self.name)
        self._clients: list[Any] = [client(node.port) for node in cluster.nodes]
        ports = [node.port for node in cluster.nodes]
        slots: Any = self._clients[0].execute_command("CLUSTER SLOTS")
        (owner,) = [row[2][1] for row in slots if row[0] <= self.slot <= row[1]]
        self._from = self._clients[ports.index(owner)]
        to = -1 if to_newest else (ports.index(owner) + 1) % 3
        self._to, self._to_port = self._clients[to], ports[to]

    def begin(self) -> None:
        """From now on, what is not there any more is asked for at the other one."""
        self._to.execute_command("CLUSTER SETSLOT", self.slot, "IMPORTING", _id(self._from))
        self._from.execute_command("CLUSTER SETSLOT", self.slot, "MIGRATING", _id(self._to))

    def move(self) -> None:
        """The record goes."""
        self._from.migrate("127.0.0.1", self._to_port, self.name.decode(), 0, 5000)

    def end(self) -> None:
        """The other one owns the slot."""
        for one in (self._to, self._from, *self._clients):
            one.execute_command("CLUSTER SETSLOT", self.slot, "NODE", _id(self._to))
        for one in self._clients:
            one.close()


def _id(node: Any) -> str:
    name = node.execute_command("CLUSTER MYID")
    return name.decode() if isinstance(name, bytes) else str(name)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_slot_moves_while_a_lock_is_held(face: str, key: str) -> None:
    """Commands follow a lock that moves to another master, before, while and after."""
    cluster = shared(RedisCluster)
    move = Move(cluster, key)

    async def run(store: Any) -> None:
        first = await store.apply(key, CLAIM, "a")
        assert isinstance(first.verdict, Granted)
        move.begin()
        assert isinstance((await store.apply(key, Renew(CLAIM.token), "b")).verdict, Granted)
        move.move()
        assert isinstance((await store.apply(key, Renew(CLAIM.token), "c")).verdict, Granted)
        move.end()
        last = await store.apply(key, Renew(CLAIM.token), "d")
        assert last.verdict.holder.fence == first.verdict.holder.fence
        assert (await store.load(key)).record.holders
        assert isinstance((await store.apply(key, Free(CLAIM.token), "e")).verdict, Freed)

    _run_through(face, cluster.url, run)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_slot_moves_while_a_lock_is_looked_at(face: str, key: str) -> None:
    """Looks and listings find a lock where it is, before, while and after it moves."""
    cluster = shared(RedisCluster)
    move = Move(cluster, key)

    async def run(store: Any) -> None:
        await store.apply(key, CLAIM, "a")
        for step in (None, move.begin, move.move, move.end):
            if step is not None:
                step()
            assert (await store.load(key)).record.holders
            assert [name for name, _ in (await store.scan(key, None, 10)).entries] == [key]

    _run_through(face, cluster.url, run)


def test_lock_on_a_new_master_is_listed(key: str) -> None:
    """Whoever has not heard yet of a new master lists the locks there all the same."""
    require(RedisServer)
    cluster = RedisCluster()
    cluster.start()
    try:
        with closing(open_store(cluster.url)) as store:
            store.apply(key, CLAIM, "a")
            assert [name for name, _ in store.scan(key, None, 10).entries] == [key]
            cluster.grow()
            move = Move(cluster, key, to_newest=True)
            move.begin()
            move.move()
            move.end()
            assert [name for name, _ in store.scan(key, None, 10).entries] == [key]
    finally:
        cluster.stop()


def _run_through(face: str, url: str, run: Callable[[Any], Awaitable[None]]) -> None:
    async def through_the_loop() -> None:
        store = open_store(url).to_async()
        await run(store)
        await store.close()

    async def blocking() -> None:
        with closing(open_store(url)) as store:
            await run(_Awaited(store))

    asyncio.run(through_the_loop() if face == "async" else blocking())


class _Awaited:
    """A blocking store whose calls are awaited."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def apply(self, *args: Any) -> Any:
        return self._store.apply(*args)

    async def load(self, key: str, by: Any = NEVER) -> Any:
        return self._store.load(key, by)

    async def scan(self, *args: Any) -> Any:
        return self._store.scan(*args)
