"""All connections to one site, the blocking way: which server to ask, and whom to ask next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Site
from holdfast.stores.redis.line import Line, Lines
from holdfast.stores.redis.routing import (
    Errand,
    Question,
    SlotMap,
    error_in,
    master_address,
    settled,
    slot_of,
)
from holdfast.stores.redis.talk import Call, Corrupt
from holdfast.stores.redis.words import CLUSTER_SLOTS, ROLE, master_of


class Wire:
    """All lines to one site, the blocking way."""

    def __init__(self, site: Site, replicas: int) -> None:
        self._site = site
        self._replicas = replicas
        self._lock = threading.Lock()
        self._slots = SlotMap(site.addresses)
        self._nodes: dict[Address, Lines] = {}
        self._main = Lines(self._find)
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
        batches: dict[Lines, list[int]] = {}
        for number, call in enumerate(calls):
            batches.setdefault(self._lines_for(call.name), []).append(number)
        answers: list[Any] = [None] * len(calls)
        for lines, numbers in batches.items():
            batch = [calls[number] for number in numbers]
            for number, answer in zip(numbers, self._batch(lines, batch), strict=True):
                answers[number] = answer
        return answers

    def ask(self, question: Question) -> list[Any]:
        """Send plain commands to the server that has this key."""
        lines = self._lines_for(question.name)
        replies = lines.exchange(question.request, question.replies, looks=True)
        if (error := error_in(replies)) is not None:
            errand = Errand(question, self._site, lines.where)
            while error is not None:
                replies = self._exchange_next(errand, error, question.name)
                error = error_in(replies)
        return question.answers(replies)

    def ask_all(self, request: bytes) -> list[tuple[Address | None, Any]]:
        """Send a command that only looks to the server, or to every master of a cluster."""
        if self._site.kind != "cluster":
            return [(None, self.ask_at(None, request))]
        self._slots.stale = True  # there may be masters by now that nobody has told us of
        self._learn_slots()
        return [(master, self.ask_at(master, request)) for master in self._slots.masters()]

    def ask_at(self, address: Address | None, request: bytes) -> Any:
        """Send a command that only looks to one server."""
        lines = self._main if address is None else self._node(address)
        return self._checked(lines.exchange(request, looks=True)[0], lines.where)

    def connect(self) -> Line:
        """A line of one's own, to any server that takes subscriptions."""
        if self._site.kind != "cluster":
            return self._find()
        self._learn_slots()
        return self._first_of(self._slots.candidates())

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        for lines in (self._main, *list(self._nodes.values())):
            lines.close()

    def forget(self) -> list[Line]:
        """Let go of the lines without touching them."""
        return [line for lines in (self._main, *self._nodes.values()) for line in lines.forget()]

    # --- second tries -----------------------------------------------------------------------

    def _insist(self, call: Call, reply: Any, where: str) -> Any:
        errand = Errand(call, self._site, where)
        while isinstance(reply, ResponseError):
            replies = self._exchange_next(errand, reply, call.name)
            reply = settled(call, replies, self._replicas, errand.where)
        return reply

    def _exchange_next(self, errand: Errand, error: ResponseError, name: bytes) -> list[Any]:
        errand.learn(error)
        lines = self._lines_next(errand, name)
        replies = lines.exchange(*errand.request())
        errand.where = lines.where
        return replies

    def _lines_next(self, errand: Errand, name: bytes) -> Lines:
        if errand.address is not None:
            if errand.moved:
                self._slots.moved(slot_of(name), errand.address)
            return self._node(errand.address)
        lines = self._lines_for(name)
        if errand.find_again:
            lines.drop_idle()
            self._slots.stale = True
            lines = self._lines_for(name)
        return lines

    def _batch(self, lines: Lines, calls: list[Call]) -> list[Any]:
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

    def _lines_for(self, name: bytes) -> Lines:
        if self._site.kind != "cluster":
            return self._main
        if self._slots.stale:
            self._learn_slots()
        return self._node(self._slots.master(slot_of(name)))

    def _node(self, address: Address) -> Lines:
        lines = self._nodes.get(address)
        if lines is None:
            with self._lock:
                new = Lines(lambda: self._connect_node(address))
                new.closed = self._closed
                lines = self._nodes.setdefault(address, new)
        return lines

    def _connect_node(self, address: Address) -> Line:
        try:
            return Line(self._site.settings, address)
        except Unavailable:
            self._slots.stale = True
            raise

    def _find(self) -> Line:
        """A new line to the one server, which Sentinel names if there is one."""
        site = self._site
        if site.kind == "single":
            return Line(site.settings, site.addresses[0])
        line = Line(site.settings, self._master())
        role = line.look(ROLE)
        if not isinstance(role, ResponseError) and role[0] != b"master":
            line.close()
            raise Unavailable(f"Redis at {line.where} is not yet the master that Sentinel names.")
        return line

    def _master(self) -> Address:
        """The master that the first Sentinel with an answer names."""
        site = self._site
        trouble: HoldfastError | None = None
        for address in site.addresses:
            try:
                sentinel = Line(site.sentinel_settings, address)
                reply = sentinel.look(master_of(site.service))
                sentinel.close()
                return master_address(reply, site.service, sentinel.where)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    def _first_of(self, addresses: Sequence[Address]) -> Line:
        """A line to the first of them that can be reached."""
        trouble: HoldfastError | None = None
        for address in addresses:
            try:
                return Line(self._site.settings, address)
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
