"""All connections to one topology, the blocking way: which server to ask, and whom to ask next."""

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


class Wire:
    """All lines to one topology, the blocking way."""

    def __init__(self, topology: Topology, replicas: int) -> None:
        self._topology = topology
        self._replicas = replicas
        self._lock = threading.Lock()
        self._slots = SlotMap(topology.addresses)
        self._nodes: dict[Address, ConnectionPool] = {}
        self._main = ConnectionPool(self._find)
        self._closed = False

    # --- asking -----------------------------------------------------------------------------

    def call(self, call: Call) -> Any:
        """Run a script; the answer is its reply."""
        lines = self._lines_for(call.name)
        replies = lines.exchange(call.request, call.replies, call.looks)
        reply = settled(call, replies, self._replicas, lines.where) if call.tail else replies[0]
        return self._insist(call, reply, lines.where) if isinstance(reply, ResponseError) else reply

    def call_many(self, calls: Sequence[Call]) -> list[Any]:
        """Run many scripts in one trip to each server; an error stands for one of them."""
        batches: dict[ConnectionPool, list[int]] = {}
        for number, call in enumerate(calls):
            batches.setdefault(self._lines_for(call.name), []).append(number)
        answers: list[Any] = [None] * len(calls)
        for lines, numbers in batches.items():
            batch = [calls[number] for number in numbers]
            for number, answer in zip(numbers, self._batch(lines, batch), strict=True):
                answers[number] = answer
        return answers

    def ask(self, request: PlainRequest) -> list[Any]:
        """Send plain commands to the server that has this key."""
        lines = self._lines_for(request.name)
        replies = lines.exchange(request.request, request.replies, looks=True)
        if (error := error_in(replies)) is not None:
            redirect = Redirect(request, self._topology, lines.where)
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
        lines = self._main if address is None else self._node(address)
        return self._checked(lines.exchange(request, looks=True)[0], lines.where)

    def connect(self) -> Connection:
        """A line of one's own, to any server that takes subscriptions."""
        if self._topology.kind != "cluster":
            return self._find()
        self._learn_slots()
        return self._first_of(self._slots.candidates())

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        for lines in (self._main, *list(self._nodes.values())):
            lines.close()

    def forget(self) -> list[Connection]:
        """Let go of the lines without touching them."""
        return [line for lines in (self._main, *self._nodes.values()) for line in lines.forget()]

    # --- second tries -----------------------------------------------------------------------

    def _insist(self, call: Call, reply: Any, where: str) -> Any:
        redirect = Redirect(call, self._topology, where)
        while isinstance(reply, ResponseError):
            replies = self._exchange_next(redirect, reply, call.name)
            reply = settled(call, replies, self._replicas, redirect.where)
        return reply

    def _exchange_next(self, redirect: Redirect, error: ResponseError, name: bytes) -> list[Any]:
        redirect.learn(error)
        lines = self._lines_next(redirect, name)
        replies = lines.exchange(*redirect.request())
        redirect.where = lines.where
        return replies

    def _lines_next(self, redirect: Redirect, name: bytes) -> ConnectionPool:
        if redirect.address is not None:
            if redirect.moved:
                self._slots.moved(slot_of(name), redirect.address)
            return self._node(redirect.address)
        lines = self._lines_for(name)
        if redirect.find_again:
            lines.drop_idle()
            self._slots.stale = True
            lines = self._lines_for(name)
        return lines

    def _batch(self, lines: ConnectionPool, calls: list[Call]) -> list[Any]:
        request = b"".join([call.request for call in calls])
        try:
            replies = lines.exchange(request, sum(call.replies for call in calls))
        except HoldfastError as trouble:
            return [trouble] * len(calls)
        answers, at = [], 0
        for call in calls:
            reply = replies[at]
            if call.tail or isinstance(reply, ResponseError):
                reply = self._answer(call, replies[at : at + call.replies], lines.where)
            answers.append(reply)
            at += call.replies
        return answers

    def _answer(self, call: Call, replies: list[Any], where: str) -> Any:
        try:
            reply = settled(call, replies, self._replicas, where)
            return self._insist(call, reply, where) if isinstance(reply, ResponseError) else reply
        except (HoldfastError, Corrupt) as trouble:
            return trouble

    def _checked(self, reply: Any, where: str) -> Any:
        if isinstance(reply, ResponseError):
            raise errors.refused(reply, where) from reply
        return reply

    # --- finding servers --------------------------------------------------------------------

    def _lines_for(self, name: bytes) -> ConnectionPool:
        if self._topology.kind != "cluster":
            return self._main
        if self._slots.stale:
            self._learn_slots()
        return self._node(self._slots.master(slot_of(name)))

    def _node(self, address: Address) -> ConnectionPool:
        lines = self._nodes.get(address)
        if lines is None:
            with self._lock:
                new = ConnectionPool(lambda: self._connect_node(address))
                new.closed = self._closed
                lines = self._nodes.setdefault(address, new)
        return lines

    def _connect_node(self, address: Address) -> Connection:
        try:
            return Connection(self._topology.settings, address)
        except Unavailable:
            self._slots.stale = True
            raise

    def _find(self) -> Connection:
        """A new line to the one server, which Sentinel names if there is one."""
        topology = self._topology
        if topology.kind == "single":
            return Connection(topology.settings, topology.addresses[0])
        line = Connection(topology.settings, self._master())
        role = line.look(ROLE)
        if not isinstance(role, ResponseError) and role[0] != b"master":
            line.close()
            raise Unavailable(f"Redis at {line.where} is not yet the master that Sentinel names.")
        return line

    def _master(self) -> Address:
        """The master that the first Sentinel with an answer names."""
        topology = self._topology
        trouble: HoldfastError | None = None
        for address in topology.addresses:
            try:
                sentinel = Connection(topology.sentinel_settings, address)
                reply = sentinel.look(master_of(topology.service))
                sentinel.close()
                return master_address(reply, topology.service, sentinel.where)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    def _first_of(self, addresses: Sequence[Address]) -> Connection:
        """A line to the first of them that can be reached."""
        trouble: HoldfastError | None = None
        for address in addresses:
            try:
                return Connection(self._topology.settings, address)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    def _learn_slots(self) -> None:
        with self._lock:
            if not self._slots.stale:
                return
            line = self._first_of(self._slots.candidates())
            try:
                reply = line.look(CLUSTER_SLOTS)
            finally:
                line.close()
            self._slots.learn(self._checked(reply, line.where), _split(line.where))


def _split(where: str) -> Address:
    host, _, port = where.rpartition(":")
    return host, int(port)
