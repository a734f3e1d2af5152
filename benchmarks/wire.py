"""How many requests an engine gets, counted on the way to it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from benchmarks.sites import EMULATED, Place
from tests.engines.proxy import Proxy

Count = Callable[[], int]
READ = re.compile(
    rb"(?:GET|HEAD) \S+ HTTP/1\.1\r\n"
    rb"|X-Amz-Target: DynamoDB_\d+\.(?:GetItem|BatchGetItem|TransactGetItems|Query|Scan)\r\n",
    re.IGNORECASE,
)


class HttpProxy(Proxy):
    """A request's head and its body may come in two pieces. Reads can be told from writes."""

    reads = 0

    def count(self, data: bytes) -> int:
        self.reads += reads_in(data)
        return requests_in(data)


def requests_in(data: bytes) -> int:
    """How many requests begin in a piece of HTTP."""
    return data.count(b" HTTP/1.1\r\n")


def reads_in(data: bytes) -> int:
    """How many of them only read."""
    return len(READ.findall(data))


@dataclass(frozen=True)
class Wire:
    """Where to connect to, and what counts the requests on the way; none, if nothing does."""

    place: Place
    count: Count = int
    reads: Count | None = None  # those of them that only read, where that can be told

    def counts(self) -> dict[str, int]:
        """What has been counted so far, by name."""
        reads = {} if self.reads is None else {"reads": self.reads()}
        return {"requests": self.count()} | reads


def countable(place: Place) -> bool:
    """Whether its requests can be counted."""
    return bool(place.port) or place.store == "sqlite"


@contextmanager
def counted(place: Place) -> Iterator[Wire]:
    """Messages that pass by on the wire, or statements of this process."""
    if place.store in EMULATED:
        with HttpProxy(place.port) as http:
            yield Wire(place.at(http.port), lambda: http.requests, lambda: http.reads)
    elif place.port:
        with Proxy(place.port) as proxy:
            yield Wire(place.at(proxy.port), lambda: proxy.requests)
    else:
        statements: list[str] = []
        with mock.patch("sqlite3.connect", _tracing(sqlite3.connect, statements)):
            yield Wire(place, lambda: len(statements))


def _tracing(connect: Callable[..., sqlite3.Connection], statements: list[str]) -> Any:
    def connect_and_trace(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    return connect_and_trace
