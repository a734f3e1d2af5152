"""Talking to Redis over redis-py's connections, but without its client in between.

redis-py connects, logs in and chooses the database. From then on its socket is ours: one
write and one read per request, parsed by hiredis. That is most of the speed, and it keeps
redis-py from sending a request again by itself. Who sends again here knows why:

 1. No connection, or a request that could not be sent whole: nothing was done.
 2. Sent, and the connection broke or nothing came in time: nobody knows.
 3. An error reply: nothing was done; `routing.Errand` says whether to try elsewhere.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hiredis
import redis.connection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Settings, Site, shown
from holdfast.stores.redis.routing import (
    Errand,
    SlotMap,
    master_address,
    settled,
    slot_of,
)
from holdfast.stores.redis.talk import Call, Corrupt
from holdfast.stores.redis.words import CLUSTER_SLOTS, ROLE, master_of

CHUNK = 65536
# A connection that was idle for longer may have been closed by the other side: look first.
TRUSTED_S = 0.5
MOST_IDLE = 32


class Line:
    """One connection. Whoever has taken it talks on it alone."""

    def __init__(self, settings: Settings, address: Address) -> None:
        self.where = shown(address)
        self.used_at = 0.0
        self._connection = settings.connection(redis.connection, Retry(NoBackoff(), 0), address)
        try:
            self._connection.connect()
        except (RedisError, OSError) as exc:
            self._connection.disconnect()
            raise errors.not_connected(exc, self.where) from exc
        self._socket = self._connection._sock
        self._reader = hiredis.Reader(replyError=ResponseError)
        self.set_timeout(settings.timeout_s)

    def exchange(self, request: bytes, count: int = 1) -> list[Any]:
        """Send a request, and read its replies. After an error the line is closed."""
        try:
            self._socket.sendall(request)
        except OSError as exc:
            self.close()
            # Of several commands the first may have left when the last one did not.
            trouble = errors.not_sent if count == 1 else errors.no_answer
            raise trouble(exc, self.where) from exc
        try:
            if count == 1:
                return [self.read()]
            return [self.read() for _ in range(count)]
        except (OSError, hiredis.HiredisError) as exc:
            self.close()
            raise errors.no_answer(exc, self.where) from exc
        except BaseException:  # an interrupt: the reply would be the next one's
            self.close()
            raise

    def read(self) -> Any:
        """The next reply."""
        reader = self._reader
        reply = reader.gets()
        while reply is False:
            try:
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                raise TimeoutError("no reply in time") from None
            if not data:
                raise ConnectionResetError("the connection was closed by the server")
            reader.feed(data)
            reply = reader.gets()
        return reply

    def send(self, request: bytes) -> None:
        """Send, and leave the replies to whoever reads."""
        self._socket.sendall(request)

    def set_timeout(self, seconds: float) -> None:
        """How long one may wait.

        Python's own timeout asks the kernel before every call; the kernel's needs no asking.
        """
        if isinstance(self._socket, ssl.SSLSocket) or sys.platform == "win32":
            self._socket.settimeout(seconds)
            return
        self._socket.settimeout(None)
        timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, timeval)

    def is_stale(self) -> bool:
        """Whether an idle line has something to say, which is: that it is closed."""
        try:
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Hang up."""
        with suppress(RedisError, OSError):
            self._connection.disconnect()


class Lines:
    """The idle connections to one server, and new ones when there is none."""

    def __init__(self, connect: Callable[[], Line]) -> None:
        self._connect = connect
        self._idle: deque[Line] = deque()
        self.closed = False

    def exchange(self, request: bytes, count: int = 1) -> tuple[list[Any], str]:
        """Send a request and read its replies; and from where they came."""
        line = self.take()
        try:
            replies = line.exchange(request, count)
        except HoldfastError:
            self.drop_idle()  # what broke one has broken them all
            raise
        self.give(line)
        return replies, line.where

    def take(self) -> Line:
        """A line for one exchange."""
        now = time.monotonic()
        while not self.closed:
            try:
                line = self._idle.pop()
            except IndexError:
                return self._connect()
            if now - line.used_at < TRUSTED_S or not line.is_stale():
                return line
            line.close()
        raise Unavailable("The connections to Redis were closed meanwhile.")

    def give(self, line: Line) -> None:
        """It can be used again."""
        if self.closed or len(self._idle) >= MOST_IDLE:
            line.close()
            return
        line.used_at = time.monotonic()
        self._idle.append(line)

    def drop_idle(self) -> None:
        """Hang up all that nobody uses."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def close(self) -> None:
        """Hang up, and connect no more."""
        self.closed = True
        self.drop_idle()

    def forget(self) -> list[Line]:
        """Let go of the lines without touching them."""
        lines = list(self._idle)
        self._idle.clear()
        return lines


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
        replies, where = self._lines_for(call.keys[0]).exchange(call.request(), call.replies)
        reply = settled(call, replies, self._replicas, where)
        return self._insist(call, reply, where) if isinstance(reply, ResponseError) else reply

    def call_many(self, calls: Sequence[Call]) -> list[Any]:
        """Run many scripts in one trip to each server; an error stands for one of them."""
        batches: dict[Lines, list[int]] = {}
        for number, call in enumerate(calls):
            batches.setdefault(self._lines_for(call.keys[0]), []).append(number)
        answers: list[Any] = [None] * len(calls)
        for lines, numbers in batches.items():
            batch = [calls[number] for number in numbers]
            for number, answer in zip(numbers, self._batch(lines, batch), strict=True):
                answers[number] = answer
        return answers

    def ask(self, name: bytes, request: bytes, count: int) -> list[Any]:
        """Send plain commands to the server that has this key."""
        replies, where = self._lines_for(name).exchange(request, count)
        return self._checked(replies, where)

    def ask_all(self, request: bytes) -> list[tuple[Address | None, Any]]:
        """Send a command to the server, or to every master of a cluster."""
        if self._site.kind != "cluster":
            return [(None, self.ask_at(None, request))]
        self._learn_slots()
        return [(master, self.ask_at(master, request)) for master in self._slots.masters()]

    def ask_at(self, address: Address | None, request: bytes) -> Any:
        """Send a command to one server."""
        lines = self._main if address is None else self._node(address)
        replies, where = lines.exchange(request)
        return self._checked(replies, where)[0]

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
            errand.learn(reply)
            replies, errand.where = self._lines_next(errand, call).exchange(*errand.request())
            reply = settled(call, replies, self._replicas, errand.where)
        return reply

    def _lines_next(self, errand: Errand, call: Call) -> Lines:
        name = call.keys[0]
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
        request = b"".join(call.request() for call in calls)
        try:
            replies, where = lines.exchange(request, sum(call.replies for call in calls))
        except HoldfastError as trouble:
            return [trouble] * len(calls)
        answers, at = [], 0
        for call in calls:
            answers.append(self._answer(call, replies[at : at + call.replies], where))
            at += call.replies
        return answers

    def _answer(self, call: Call, replies: list[Any], where: str) -> Any:
        try:
            reply = settled(call, replies, self._replicas, where)
            return self._insist(call, reply, where) if isinstance(reply, ResponseError) else reply
        except (HoldfastError, Corrupt) as trouble:
            return trouble

    def _checked(self, replies: list[Any], where: str) -> list[Any]:
        for reply in replies:
            if isinstance(reply, ResponseError):
                if str(reply).startswith("MOVED"):
                    self._slots.stale = True
                raise errors.refused(reply, where) from reply
        return replies

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
        (role,) = line.exchange(ROLE)
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
                (reply,) = sentinel.exchange(master_of(site.service))
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
                (reply,) = line.exchange(CLUSTER_SLOTS)
            finally:
                line.close()
            self._slots.learn(self._checked([reply], line.where)[0], _split(line.where))


def _split(where: str) -> Address:
    host, _, port = where.rpartition(":")
    return host, int(port)
