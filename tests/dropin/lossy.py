"""A TCP proxy on loopback that loses requests and replies, and cuts connections.

    pass            everything goes through
    drop request    the request is swallowed, and nothing is answered
    drop reply      the request is carried out, and its reply is swallowed
    cut reply       the request is carried out, and then the connection breaks
    reset           the connection breaks before the request gets through

A plan is for the next so many requests that have some bytes in them; all others pass.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Mode = Literal["pass", "drop request", "drop reply", "cut reply", "reset"]


class LossyProxy:
    """Listens on a port of its own and speaks to another one."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._plan: tuple[Mode, int, bytes] = ("pass", 0, b"")
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.lost = 0
        self.after_loss: Callable[[], object] = lambda: None  # before the client can notice
        threading.Thread(target=self._accept, daemon=True).start()

    def plan(self, mode: Mode, count: int = 1, having: bytes = b"") -> None:
        """What happens to the next requests that have these bytes in them."""
        with self._lock:
            self._plan = (mode, count, having)

    def heal(self) -> None:
        """Everything passes from here on."""
        self.plan("pass", 0)

    def close(self) -> None:
        """Break all connections and stop."""
        for each in (self._server, *self._sockets):
            _cut(each)

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                pair = _Pair(self, client, server)
                for pump in (pair.requests, pair.replies):
                    threading.Thread(target=pump, daemon=True).start()

    def fate(self, request: bytes) -> Mode:
        """What is planned for this request."""
        with self._lock:
            mode, count, having = self._plan
            if count <= 0 or having not in request:
                return "pass"
            self._plan = (mode, count - 1, having)
            self.lost += 1
            return mode


class _Pair:
    """One connection and its way through."""

    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._reply_fate: Mode = "pass"

    def requests(self) -> None:
        """From the client to the server."""
        with suppress(OSError):
            while data := self._client.recv(1 << 16):
                fate = self._proxy.fate(data)
                if fate == "reset":
                    break
                if fate == "drop request":
                    continue
                if fate != "pass":
                    self._reply_fate = fate
                self._server.sendall(data)
        self._end()

    def replies(self) -> None:
        """From the server to the client."""
        with suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._reply_fate == "cut reply":
                    self._proxy.after_loss()
                    break
                if self._reply_fate == "pass":
                    self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        _cut(self._client)
        _cut(self._server)


def _cut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        each.close()
