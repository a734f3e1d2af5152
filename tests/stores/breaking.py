"""A server that breaks off as it is told: at a certain place of a request or of its reply, by a
reset or by closing."""

from __future__ import annotations

import re
import socket
import struct
import time
from contextlib import suppress
from typing import NamedTuple

from tests.engines.front import Front


class Break(NamedTuple):
    """How a connection ends."""

    reads: bool = True  # the request, before anything else
    passes_on: bool = False  # the request to the real server, which carries it out
    reply: bytes | float = b""  # what it answers, or how much of the real reply
    reset: bool = False  # or closed in good order
    late_s: float = 0.0  # how long it waits before it answers


RESET = struct.pack("ii", 1, 0)


class BreakingServer(Front):
    """In front of the server at a port, or in its place. Breaks off the requests that begin
    with these words, and passes on all others."""

    def __init__(self, target: int, how: Break, words: tuple[bytes, ...] = (b"PUT ",)) -> None:
        super().__init__(target)
        self.how: Break | None = how
        self._words = words

    def _join(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while asked := self._first_bytes(client):
                how = self.how
                if how is None or not asked.startswith(self._words):
                    client.sendall(self._carry_out(_whole(client)))
                    continue
                self._break(client, how)
                return

    def _first_bytes(self, client: socket.socket) -> bytes:
        return client.recv(16, socket.MSG_PEEK)

    def _break(self, client: socket.socket, how: Break) -> None:
        request = _whole(client) if how.reads else b""
        done = self._carry_out(request) if how.passes_on else b""
        reply = how.reply
        if isinstance(reply, float):
            reply = done[: int(len(done) * reply)]
        time.sleep(how.late_s)
        if reply:
            client.sendall(reply)
        if how.reset:
            time.sleep(0.1 if reply else 0)  # a reset would overtake the reply
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _carry_out(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            server.sendall(re.sub(rb"\r\n", b"\r\nConnection: close\r\n", request, count=1))
            reply = b""
            while some := server.recv(65536):
                reply += some
            return reply


def _whole(client: socket.socket) -> bytes:
    """A request to its end."""
    request = b""
    while not (split := re.search(rb"\r\n\r\n", request)):
        request += client.recv(65536)
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", request[: split.end()])
    end = split.end() + (int(length[1]) if length else 0)
    while len(request) < end:
        request += client.recv(65536)
    return request
