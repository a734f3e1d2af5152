"""How many requests an engine gets, counted on the way to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from benchmarks.sites import EMULATED, Place
from tests.engines.proxy import Proxy

Count = Callable[[], int]


class HttpProxy(Proxy):
    """A request's head and its body may come in two pieces."""

    def count(self, data: bytes) -> int:
        return data.count(b" HTTP/1.1\r\n")


def countable(place: Place) -> bool:
    """Whether its requests can be counted."""
    return bool(place.port) or place.store == "sqlite"


@contextmanager
def counted(place: Place) -> Iterator[tuple[Place, Count]]:
    """The place to connect to, and what counts: messages on the wire, or statements."""
    if place.port:
        kind = HttpProxy if place.store in EMULATED else Proxy
        with kind(place.port) as proxy:
            yield place.at(proxy.port), lambda: proxy.requests
    else:
        statements: list[str] = []
        with mock.patch("sqlite3.connect", _tracing(sqlite3.connect, statements)):
            yield place, lambda: len(statements)


def _tracing(connect: Callable[..., sqlite3.Connection], statements: list[str]) -> Any:
    def connect_and_trace(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    return connect_and_trace
