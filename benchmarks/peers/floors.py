"""The bare engines: two trips of the cheapest command that could make a lock.

Not locks: nobody waits, nothing is kept alive, no reply may be lost. They are the physical
limit that a lock on this engine can come near to.
"""

from __future__ import annotations

import socket
import sqlite3
from abc import abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.base import Peer
from benchmarks.sites import Place

RECORD = "x" * 250  # about as long as ours
TABLE = "CREATE TABLE bare (name VARCHAR(100) PRIMARY KEY, version BIGINT, record VARCHAR(500))"
INSERT = "INSERT INTO bare VALUES ('k', 0, '')"
SWAP = "UPDATE bare SET version = %s, record = %s WHERE name = %s AND version = %s"


class Floor(Peer):
    """One trip to enter, one to leave."""

    kind = "floor"

    def lock(self, key: str) -> Floor:
        self.key = key
        return self

    @abstractmethod
    def take(self) -> None:
        """The first trip."""

    @abstractmethod
    def free(self) -> None:
        """The second."""

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *exc: object) -> None:
        self.free()


class BareRedis(Floor):
    """A socket and hiredis: SET NX PX, then the script that deletes what is ours."""

    stores = ("redis",)
    name = "bare SET, EVALSHA"
    package = "hiredis"
    modules = ("hiredis",)
    SCRIPT = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"

    def __init__(self, place: Place) -> None:
        hiredis = import_module("hiredis")
        self._pack, self._reader = hiredis.pack_command, hiredis.Reader()
        self._socket = socket.create_connection(("127.0.0.1", place.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sha = self._call("SCRIPT", "LOAD", self.SCRIPT)

    def take(self) -> None:
        self._call("SET", self.key, "token", "NX", "PX", "30000")

    def free(self) -> None:
        self._call("EVALSHA", self._sha, "1", self.key, "token")

    def _call(self, *words: Any) -> Any:
        self._socket.sendall(self._pack(words))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        self._socket.close()


class SwapFloor(Floor):
    """A compare-and-swap of one row by its version, twice."""

    def __init__(self, place: Place) -> None:
        self._version = 0

    @abstractmethod
    def swap(self, parameters: tuple[object, ...]) -> None:
        """Run the statement."""

    def take(self) -> None:
        self.swap((self._version + 1, RECORD, "k", self._version))
        self._version += 1

    free = take


class BareSQLite(SwapFloor):
    """The standard library's driver, set as ours."""

    stores = ("sqlite",)
    name = "bare UPDATE, UPDATE"
    package = ""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        path = Path(place.folder, "bare.db")
        path.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(f"{TABLE} WITHOUT ROWID")
        self._connection.execute(INSERT)
        self._statement = SWAP.replace("%s", "?")

    def swap(self, parameters: tuple[object, ...]) -> None:
        self._connection.execute(self._statement, parameters)

    def close(self) -> None:
        self._connection.close()


class BareServer(SwapFloor):
    """A database server with a driver of the usual kind."""

    _connection: Any

    def prepare(self) -> None:
        """Make the row and the cursor."""
        self._cursor = self._connection.cursor()
        self._cursor.execute("DROP TABLE IF EXISTS bare")
        self._cursor.execute(TABLE)
        self._cursor.execute(INSERT)

    def close(self) -> None:
        self._connection.close()


class BarePostgreSQL(BareServer):
    """psycopg, with a prepared statement."""

    stores = ("postgresql",)
    name = "bare UPDATE, UPDATE"
    package = "psycopg"
    modules = ("psycopg",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._connection = import_module("psycopg").connect(place.url, autocommit=True)
        self.prepare()

    def swap(self, parameters: tuple[object, ...]) -> None:
        self._cursor.execute(SWAP, parameters, prepare=True)


class BareMySQL(BareServer):
    """PyMySQL."""

    stores = ("mysql",)
    name = "bare UPDATE, UPDATE"
    package = "PyMySQL"
    modules = ("pymysql",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._connection = import_module("pymysql").connect(
            host="127.0.0.1", port=place.port, user="root", database="holdfast", autocommit=True
        )
        self.prepare()

    def swap(self, parameters: tuple[object, ...]) -> None:
        self._cursor.execute(SWAP, parameters)
