"""What Holdfast uses of redis-py that is not public: a new release that changes it fails here."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import redis.asyncio.connection
import redis.connection

import holdfast.stores.redis
from tests.engines.redis import RedisServer

FOLDER = Path(holdfast.stores.redis.__file__).parent
# Of another object than `self`: `theirs._writer`, `connection._sock`.
PRIVATE = re.compile(r"(?<!self)(?<!cls)\._(?!_)[a-z]\w*")


def test_where_private_parts_are_used() -> None:
    """Only in `pipeline`, which takes over the transport of an asyncio connection, where a
    forked child gives up its copy of one, and where a thread waits for what comes by TLS."""
    found = {
        (file.name, use)
        for file in FOLDER.glob("*.py")
        for use in PRIVATE.findall(file.read_text())
    }
    theirs = {"._writer", "._reader"}
    assert {use for _, use in found} & theirs == theirs
    users = {name for name, use in found if use in theirs}
    assert users == {"pipeline.py", "connection_async.py"}
    users = {name for name, use in found if use == "._sock"}
    assert users == {"connection.py", "connection_async.py"}


def test_the_socket_of_a_blocking_connection(server: RedisServer) -> None:
    """A connection has the socket that it reads from."""
    theirs: Any = redis.connection
    connection = theirs.Connection(port=server.port)
    connection.connect()
    assert isinstance(connection._sock, socket.socket)
    connection.disconnect()


def test_the_transport_of_an_asyncio_connection(server: RedisServer) -> None:
    """A connection has a writer with a transport that takes a protocol, and a reader; without them
    it counts as closed."""

    async def run() -> None:
        connection: Any = redis.asyncio.connection.Connection(port=server.port)
        await connection.connect()
        transport = connection._writer.transport
        assert isinstance(transport, asyncio.Transport)
        assert callable(transport.set_protocol)
        assert connection._reader is not None
        assert connection.is_connected
        transport.abort()
        connection._reader = connection._writer = None
        assert not connection.is_connected

    asyncio.run(run())
