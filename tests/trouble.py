"""Servers in trouble, for the soak: they crash, freeze, end and come back, and replies get lost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import holdfast
from tests.engines.base import Engine
from tests.engines.dynamodb import CREDENTIALS, DurableDynamoDBLocal
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.proxy import Mode, Proxy
from tests.engines.redis import RedisServer

# For how long a server is away, or the network loses something. The ttl is in between.
SPANS_S = (0, 0.05, 0.3, 1.5, 2.5)
MODES: tuple[Mode, ...] = (
    "drop requests", "drop replies", "reset replies", "halve replies", "refuse",
)  # fmt: skip


class DurablePostgreSQL(PostgreSQL):
    """As it is installed."""

    settings = ("fsync=on",)


class DurableMariaDB(MariaDB):
    """As it is installed."""

    settings = ("--innodb-flush-log-at-trx-commit=1",)


class DurableRedis(RedisServer):
    """One that has written down what it has acknowledged."""

    def __init__(self) -> None:
        super().__init__("--appendonly", "yes", "--appendfsync", "always")


# A server that forgets nothing when it crashes, and its URL through another port.
SERVERS: Mapping[str, tuple[type[Engine], Callable[[Any, int], str]]] = {
    "postgresql": (DurablePostgreSQL, lambda server, port: server.url(port=str(port))),
    "mysql": (DurableMariaDB, lambda server, port: server.url(port=str(port))),
    "redis": (DurableRedis, lambda server, port: f"redis://127.0.0.1:{port}/0"),
    "dynamodb": (
        DurableDynamoDBLocal,
        lambda server, port: (
            f"dynamodb://Soak?endpoint_url=http://127.0.0.1:{port}&clock_margin_s=0&poll_s=0.2"
        ),
    ),
}


class Trouble:
    """What can go wrong between a server and its clients. Each call is one misfortune, and
    when it returns, all is well again."""

    def __init__(self, server: Engine, proxy: Proxy) -> None:
        self._server = server
        self._proxy = proxy

    def __call__(self) -> None:
        random.choice([self._crash, self._end, self._freeze, self._lose, self._lose, self._cut])()

    def _crash(self) -> None:
        self._server.kill()
        _wait()
        self._server.start()

    def _end(self) -> None:
        self._server.shut_down()
        _wait()
        self._server.start()

    def _freeze(self) -> None:
        self._server.pause()
        _wait()
        self._server.resume()

    def _lose(self) -> None:
        self._proxy.mode = random.choice(MODES)
        _wait()
        self._proxy.mode = "pass"
        self._proxy.cut()

    def _cut(self) -> None:
        for _ in range(random.randrange(1, 6)):
            self._proxy.cut()
            time.sleep(random.uniform(0, 0.1))


def _wait() -> None:
    time.sleep(random.choice(SPANS_S))


@contextmanager
def troubled(name: str) -> Iterator[tuple[str, Trouble]]:
    """A server of this kind: the URL of a store on it, and what can happen to it."""
    kind, url_through = SERVERS[name]
    os.environ.update(CREDENTIALS)
    server = kind()
    try:
        server.start()
        with Proxy(server.port) as proxy:
            url = url_through(server, proxy.port)
            with holdfast.connect(url) as locks:
                locks.setup()
            yield url, Trouble(server, proxy)
    finally:
        server.stop()
