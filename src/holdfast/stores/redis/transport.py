# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Sends requests to the servers of one topology.

Which server is asked, and which one next after a redirection, is decided by `protocol`. This
module connects, sends and reads: through `connection` in threads, through `pipeline` on an event
loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from holdfast.core.records import NEVER, SECOND, Micros
from holdfast.errors import HoldfastError, Unavailable
from holdfast.runtime import clock
from holdfast.stores.deadlines import seconds_to_send
from holdfast.stores.redis import errors
from holdfast.stores.redis.codec import Call, Corrupt
from holdfast.stores.redis.connect import Address, Settings, Topology
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.pool import ConnectionPool
from holdfast.stores.redis.protocol import (
    Redirect,
    SlotMap,
    master_address,
    settled,
    slot_of,
)
from holdfast.stores.redis.resp import CLUSTER_SLOTS, ROLE, master_of

R = TypeVar("R")


class Transport:
    """All connections to one topology."""

    def __init__(self, topology: Topology, replicas: int) -> None:
        self._topology = topology
        self._replicas = replicas
        self._slots = SlotMap(topology.addresses)
        self._nodes: dict[Address, ConnectionPool] = {}
        self._main = ConnectionPool(self._find)
        self._only = self._main if topology.kind != "cluster" else None
        self._closed = False
        self._answered: Address | None = None  # which server has told us of the others last

    # --- requests ---------------------------------------------------------------------------

    def call(self, call: Call, by: Micros = NEVER) -> Any:
        """Run a script. Returns its reply."""
        pool = self._only or self._pool_for(call.name, by)
        replies = pool.exchange(call.request, call.replies, call.looks, by)
        if call.tail or isinstance(replies[0], ResponseError):
            return self._settled(call, replies, pool.where, by)
        return replies[0]

    def _settled(self, call: Call, replies: list[Any], where: str, by: Micros) -> Any:
        """The reply of a script, following redirections."""
        redirect = Redirect(call, self._topology, where)
        reply = settled(call, replies, self._replicas, where)
        while isinstance(reply, ResponseError):
            redirect.learn(reply)
            pool = self._next_pool(redirect, call.name, by)
            replies = pool.exchange(*redirect.request(), by)
            redirect.where = pool.where
            reply = settled(call, replies, self._replicas, pool.where)
        return reply

    def call_many(self, calls: Sequence[Call], by: Micros) -> list[Any]:
        """Run many scripts in one trip to each server; an error stands for one of them."""
        batches: dict[ConnectionPool, list[int]] = {}
        for number, call in enumerate(calls):
            batches.setdefault(self._pool_for(call.name, by), []).append(number)
        answers: list[Any] = [None] * len(calls)
        for pool, numbers in batches.items():
            batch = [calls[number] for number in numbers]
            for number, answer in zip(numbers, self._batch(pool, batch, by), strict=True):
                answers[number] = answer
        return answers

    def _batch(self, pool: ConnectionPool, calls: list[Call], by: Micros) -> list[Any]:
        request = b"".join([call.request for call in calls])
        try:
            replies = pool.exchange(request, sum(call.replies for call in calls), by=by)
        except HoldfastError as trouble:
            return [trouble] * len(calls)
        answers, at = [], 0
        for call in calls:
            reply = replies[at]
            if call.tail or isinstance(reply, ResponseError):
                reply = self._answer(call, replies[at : at + call.replies], pool.where, by)
            answers.append(reply)
            at += call.replies
        return answers

    def _answer(self, call: Call, replies: list[Any], where: str, by: Micros) -> Any:
        try:
            return self._settled(call, replies, where, by)
        except (HoldfastError, Corrupt) as trouble:
            return trouble

    def servers(self, by: Micros = NEVER) -> list[ConnectionPool]:
        """The one server, or every master of a cluster."""
        if self._only is not None:
            return [self._only]
        self._slots.stale = True  # there may be masters by now that nobody has told us of
        self._learn_slots(by)
        return [self._node(master) for master in self._slots.masters()]

    def ask(self, server: ConnectionPool, request: bytes, by: Micros = NEVER) -> Any:
        """Send a command that only looks to one server."""
        (reply,) = server.exchange(request, looks=True, by=by)
        return errors.checked(reply, server.where)

    def connect(self) -> Connection:
        """Returns a connection of one's own, to any server that takes subscriptions."""
        if self._only is not None:
            return self._find(NEVER)
        self._learn_slots(NEVER)
        return self._connect_node(random.choice(self._slots.masters()), NEVER)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for pool in (self._main, *list(self._nodes.values())):
            pool.close()

    def forget(self) -> list[Connection]:
        """Returns all connections without touching them, for a forked child to keep."""
        pools = (self._main, *self._nodes.values())
        return [connection for pool in pools for connection in pool.forget()]

    # --- redirections -----------------------------------------------------------------------

    def _next_pool(self, redirect: Redirect, name: bytes, by: Micros) -> ConnectionPool:
        if redirect.address is not None:
            if redirect.moved:
                self._slots.moved(slot_of(name), redirect.address)
            return self._node(redirect.address)
        pool = self._pool_for(name, by)
        if redirect.find_again:
            pool.drop_idle()
            self._slots.stale = True
            pool = self._pool_for(name, by)
        return pool

    # --- finding servers --------------------------------------------------------------------

    def _pool_for(self, name: bytes, by: Micros) -> ConnectionPool:
        if self._only is not None:
            return self._only
        if self._slots.stale:
            self._learn_slots(by)
        return self._node(self._slots.master(slot_of(name)))

    def _node(self, address: Address) -> ConnectionPool:
        pool = self._nodes.get(address)
        if pool is None:
            new = ConnectionPool(lambda by: self._connect_node(address, by))
            pool = self._nodes.setdefault(address, new)
            pool.closed = self._closed
        return pool

    def _connect_node(self, address: Address, by: Micros) -> Connection:
        try:
            return Connection.open(self._topology.settings, address, by)
        except Unavailable:
            self._slots.stale = True
            raise

    def _find(self, by: Micros) -> Connection:
        """Returns a new connection to the one server, which Sentinel names if there is one."""
        topology = self._topology
        if topology.kind == "single":
            return Connection.open(topology.settings, topology.addresses[0], by)
        master = self._master(by)
        connection = Connection.open(topology.settings, master, by)
        role = connection.look(ROLE, by)
        if not isinstance(role, ResponseError) and role[0] != b"master":
            connection.close()
            raise Unavailable(
                f"Redis at {connection.where} is not yet the master that Sentinel names."
            )
        return connection

    def _master(self, by: Micros) -> Address:
        """Returns the master that the first Sentinel with an answer names."""
        topology = self._topology
        return self._first_answer(
            topology.sentinel_settings,
            topology.addresses,
            master_of(topology.service),
            lambda reply, where: master_address(reply, topology.service, where),
            by,
        )

    def _learn_slots(self, by: Micros) -> None:
        self._ask_for_slots(by)

    def _ask_for_slots(self, by: Micros) -> None:
        if self._slots.stale:
            settings, candidates = self._topology.settings, self._slots.candidates()
            self._first_answer(settings, candidates, CLUSTER_SLOTS, self._slots.learn, by)

    def _first_answer(
        self,
        settings: Settings,
        addresses: Sequence[Address],
        request: bytes,
        read: Callable[[Any, str], R],
        by: Micros,
    ) -> R:
        """Ask one after the other, first the one that answered last. Returns the first answer that
        can be read. Each one has its share of the time, because the first may be frozen."""
        trouble: HoldfastError | None = None
        in_turn = sorted(addresses, key=lambda address: address != self._answered)
        for place, address in enumerate(in_turn):
            try:
                share = seconds_to_send(by, settings.timeout_s) / (len(in_turn) - place)
                until = clock.monotonic() + round(share * SECOND)
                connection = Connection.open(settings, address, until)
                reply = connection.look(request, until)
                connection.close()
                answer = read(errors.checked(reply, connection.where), connection.where)
            except HoldfastError as exc:
                trouble = exc
            else:
                self._answered = address
                return answer
        assert trouble is not None
        raise trouble
