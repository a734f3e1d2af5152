# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Sends requests to the servers of one topology.

Which server is asked, and which one next after a redirection, is decided by `protocol`. This
module connects, sends and reads: through `connection` in threads, through `pipeline` on an event
loop.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.redis import errors
from holdfast.stores.redis.codec import Call, Corrupt
from holdfast.stores.redis.connect import Address, Topology
from holdfast.stores.redis.connection import Connection, ConnectionPool
from holdfast.stores.redis.protocol import (
    PlainRequest,
    Redirect,
    SlotMap,
    error_in,
    master_address,
    settled,
    slot_of,
)
from holdfast.stores.redis.resp import CLUSTER_SLOTS, ROLE, master_of


class Transport:
    """All connections to one topology."""

    def __init__(self, topology: Topology, replicas: int) -> None:
        self._topology = topology
        self._replicas = replicas
        self._slots = SlotMap(topology.addresses)
        self._nodes: dict[Address, ConnectionPool] = {}
        self._main = ConnectionPool(self._find)
        self._closed = False
        self._learning = threading.Lock()

    # --- requests ---------------------------------------------------------------------------

    def call(self, call: Call) -> Any:
        """Run a script. Returns its reply."""
        pool = self._pool_for(call.name)
        replies = pool.exchange(call.request, call.replies, call.looks)
        return self.settled(call, replies, pool.where)

    def settled(self, call: Call, replies: list[Any], where: str) -> Any:
        """The reply of a script, following redirections."""
        reply = settled(call, replies, self._replicas, where)
        if isinstance(reply, ResponseError):
            redirect = Redirect(call, self._topology, where)
            while isinstance(reply, ResponseError):
                replies = self._exchange_next(redirect, reply, call.name)
                reply = settled(call, replies, self._replicas, redirect.where)
        return reply

    def call_many(self, calls: Sequence[Call]) -> list[Any]:
        """Run many scripts in one trip to each server; an error stands for one of them."""
        batches: dict[ConnectionPool, list[int]] = {}
        for number, call in enumerate(calls):
            batches.setdefault(self._pool_for(call.name), []).append(number)
        answers: list[Any] = [None] * len(calls)
        for pool, numbers in batches.items():
            batch = [calls[number] for number in numbers]
            for number, answer in zip(numbers, self._batch(pool, batch), strict=True):
                answers[number] = answer
        return answers

    def _batch(self, pool: ConnectionPool, calls: list[Call]) -> list[Any]:
        request = b"".join([call.request for call in calls])
        try:
            replies = pool.exchange(request, sum(call.replies for call in calls))
        except HoldfastError as trouble:
            return [trouble] * len(calls)
        answers, at = [], 0
        for call in calls:
            reply = replies[at]
            if call.tail or isinstance(reply, ResponseError):
                reply = self._answer(call, replies[at : at + call.replies], pool.where)
            answers.append(reply)
            at += call.replies
        return answers

    def _answer(self, call: Call, replies: list[Any], where: str) -> Any:
        try:
            return self.settled(call, replies, where)
        except (HoldfastError, Corrupt) as trouble:
            return trouble

    def ask(self, request: PlainRequest) -> list[Any]:
        """Send plain commands to the server that has this key."""
        pool = self._pool_for(request.name)
        replies = pool.exchange(request.request, request.replies, looks=True)
        if (error := error_in(replies)) is not None:
            redirect = Redirect(request, self._topology, pool.where)
            while error is not None:
                replies = self._exchange_next(redirect, error, request.name)
                error = error_in(replies)
        return request.answers(replies)

    def ask_all(self, request: bytes) -> list[tuple[Address | None, Any]]:
        """Send a command that only looks to the server, or to every master of a cluster."""
        if self._topology.kind != "cluster":
            return [(None, self.ask_at(None, request))]
        self._slots.stale = True  # there may be masters by now that nobody has told us of
        self._learn_slots()
        return [(master, self.ask_at(master, request)) for master in self._slots.masters()]

    def ask_at(self, address: Address | None, request: bytes) -> Any:
        """Send a command that only looks to one server."""
        pool = self._main if address is None else self._node(address)
        (reply,) = pool.exchange(request, looks=True)
        return errors.checked(reply, pool.where)

    def connect(self) -> Connection:
        """Returns a connection of one's own, to any server that takes subscriptions."""
        if self._topology.kind != "cluster":
            return self._find()
        self._learn_slots()
        return self._first_of(self._slots.candidates())

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

    def _exchange_next(self, redirect: Redirect, error: ResponseError, name: bytes) -> list[Any]:
        redirect.learn(error)
        pool = self._next_pool(redirect, name)
        replies = pool.exchange(*redirect.request())
        redirect.where = pool.where
        return replies

    def _next_pool(self, redirect: Redirect, name: bytes) -> ConnectionPool:
        if redirect.address is not None:
            if redirect.moved:
                self._slots.moved(slot_of(name), redirect.address)
            return self._node(redirect.address)
        pool = self._pool_for(name)
        if redirect.find_again:
            pool.drop_idle()
            self._slots.stale = True
            pool = self._pool_for(name)
        return pool

    # --- finding servers --------------------------------------------------------------------

    def _pool_for(self, name: bytes) -> ConnectionPool:
        if self._topology.kind != "cluster":
            return self._main
        if self._slots.stale:
            self._learn_slots()
        return self._node(self._slots.master(slot_of(name)))

    def _node(self, address: Address) -> ConnectionPool:
        pool = self._nodes.get(address)
        if pool is None:
            new = ConnectionPool(lambda: self._connect_node(address))
            pool = self._nodes.setdefault(address, new)
            pool.closed = self._closed
        return pool

    def _connect_node(self, address: Address) -> Connection:
        try:
            return Connection.open(self._topology.settings, address)
        except Unavailable:
            self._slots.stale = True
            raise

    def _find(self) -> Connection:
        """Returns a new connection to the one server, which Sentinel names if there is one."""
        topology = self._topology
        if topology.kind == "single":
            return Connection.open(topology.settings, topology.addresses[0])
        connection = Connection.open(topology.settings, self._master())
        role = connection.look(ROLE)
        if not isinstance(role, ResponseError) and role[0] != b"master":
            connection.close()
            raise Unavailable(
                f"Redis at {connection.where} is not yet the master that Sentinel names."
            )
        return connection

    def _master(self) -> Address:
        """Returns the master that the first Sentinel with an answer names."""
        topology = self._topology
        trouble: HoldfastError | None = None
        for address in topology.addresses:
            try:
                sentinel = Connection.open(topology.sentinel_settings, address)
                reply = sentinel.look(master_of(topology.service))
                sentinel.close()
                return master_address(reply, topology.service, sentinel.where)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    def _first_of(self, addresses: Sequence[Address]) -> Connection:
        """Returns a connection to the first of them that can be reached."""
        trouble: HoldfastError | None = None
        for address in addresses:
            try:
                return Connection.open(self._topology.settings, address)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    def _learn_slots(self) -> None:
        with self._learning:
            if not self._slots.stale:
                return
            connection = self._first_of(self._slots.candidates())
            try:
                reply = connection.look(CLUSTER_SLOTS)
            finally:
                connection.close()
            host, _, port = connection.where.rpartition(":")
            self._slots.learn(errors.checked(reply, connection.where), (host, int(port)))
