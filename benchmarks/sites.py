"""The engines: each is started for its part of a run, with an empty store."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import holdfast


@dataclass(frozen=True)
class Place:
    """Where a store is, for us and for the peers; can be sent to another process."""

    store: str
    url: str  # for holdfast.connect
    port: int = 0
    folder: str = ""
    engine: str = ""  # its name and version, for people
    processes: bool = True  # whether several processes can use it
    environment: dict[str, str] = field(default_factory=dict)  # for whoever connects to it

    def at(self, port: int) -> Place:
        """The same through another port, where somebody listens in."""
        return replace(self, url=self.url.replace(f":{self.port}", f":{port}"), port=port)


# An emulator in Java or JavaScript has enough to do with a part of what the others get.
EMULATED = frozenset({"dynamodb", "az"})

Site = Callable[[], AbstractContextManager[Place]]


@contextmanager
def memory() -> Iterator[Place]:
    """The store in this process: the core's own share of every other store's time."""
    engine = f"Python {platform.python_version()}"
    yield Place("memory", f"memory://{uuid4().hex}", engine=engine, processes=False)


@contextmanager
def sqlite() -> Iterator[Place]:
    """A file of this machine, and a folder for the peers that lock files."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        engine = f"SQLite {sqlite3.sqlite_version}"
        yield Place("sqlite", f"sqlite://{folder}/locks.db", folder=folder, engine=engine)


@contextmanager
def redis() -> Iterator[Place]:
    """A server that keeps nothing on disk."""
    with _engine("tests.engines.redis", "RedisServer") as server:
        engine = f"Redis {_version('redis-server', '--version', word=2).removeprefix('v=')}"
        yield Place("redis", server.url, server.port, engine=engine)


@contextmanager
def postgresql() -> Iterator[Place]:
    """A server that does not wait for the disk."""
    with _engine("tests.engines.postgres", "PostgreSQL") as server:
        [program] = server._program("postgres")
        engine = f"PostgreSQL {_version(program, '--version', word=2)}"
        yield Place("postgresql", server.url(), server.port, engine=engine)


@contextmanager
def mysql() -> Iterator[Place]:
    """MariaDB, which speaks the same."""
    with _engine("tests.engines.mariadb", "MariaDB") as server:
        engine = f"MariaDB {_version('mariadbd', '--version', word=2)}"
        yield Place("mysql", server.url(), server.port, engine=engine)


@contextmanager
def dynamodb() -> Iterator[Place]:
    """AWS's own local server."""
    with _engine("tests.engines.dynamodb", "DynamoDBLocal") as server:
        credentials = import_module("tests.engines.dynamodb").CREDENTIALS
        # All processes are on one machine with one clock.
        options = f"endpoint_url=http://127.0.0.1:{server.port}&clock_margin_s=0"
        engine = f"DynamoDB Local ({server.npm[0].name} {server.npm[0].version})"
        place = Place("dynamodb", f"dynamodb://Locks?{options}", server.port, engine=engine)
        place = replace(place, environment=credentials)
        os.environ.update(credentials)
        with holdfast.connect(place.url) as locks:
            locks.setup()
        yield place


@contextmanager
def azure() -> Iterator[Place]:
    """Azurite, Microsoft's emulator of its blob service."""
    with _engine("tests.engines.azurite", "Azurite") as server:
        server.create_container("locks")
        module = import_module("tests.engines.azurite")
        options = (
            f"account_name={module.ACCOUNT}&account_key={quote(module.ACCOUNT_KEY, safe='')}"
            f"&endpoint={server.endpoint}&clock_skew_s=0"
        )
        engine = f"Azurite {server.npm[0].version}"
        yield Place("az", f"az://locks/bench?{options}", server.port, engine=engine)


@contextmanager
def directory() -> Iterator[Place]:
    """A directory of this machine, as a blob store."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield Place("file", f"file://{folder}/locks", folder=folder, engine="a directory")


SITES: dict[str, Site] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": redis,
    "postgresql": postgresql,
    "mysql": mysql,
    "dynamodb": dynamodb,
    "az": azure,
    "file": directory,
}


def _engine(module: str, name: str) -> Any:
    """An engine of the tests; its driver may be missing here."""
    return getattr(import_module(module), name)()


def _version(*command: str, word: int) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[word]
