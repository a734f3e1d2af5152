"""What can be frozen: each engine; and for the stores without a server, a process that stops while
it writes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.stores.registry import open_store
from tests.conformance.blob_targets import azure_url, s3_url
from tests.engines.azurite import Azurite
from tests.engines.base import Engine, require
from tests.engines.dynamodb import DynamoDBLocal, session
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.s3 import S3Server
from tests.helpers import until

# A URL, what freezes the store behind it, and what lets it go on.
Site = tuple[str, Callable[[], None], Callable[[], None]]

STOPS_IN_A_WRITE = """
import sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
writer.execute("BEGIN IMMEDIATE")
print("writes", flush=True)
sys.stdin.readline()
"""
STOPS_WITH_THE_LOCKS = """
import fcntl, pathlib, sys
files = [path.open() for path in pathlib.Path(sys.argv[1], ".holdfast").glob("lock-*")]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("writes", flush=True)
sys.stdin.readline()
"""


def _dynamodb_url(server: DynamoDBLocal) -> str:
    endpoint = f"http://127.0.0.1:{server.port}"
    store = open_store(session(), table="Frozen", endpoint_url=endpoint)
    store.setup()
    store.close()
    return f"dynamodb://Frozen?region=eu-west-1&endpoint_url={endpoint}"


@contextlib.contextmanager
def _engine(kind: type[Any], url_of: Callable[[Any], str]) -> Iterator[Site]:
    require(kind)
    server: Engine = kind()
    with server:

        def freeze() -> None:
            server.pause()
            until(lambda: _stands_still(server.pid))

        yield url_of(server), freeze, server.resume


def _stands_still(pid: int) -> bool:
    """Whether all threads of a process, and of its children, have stopped: on a busy machine that
    takes a while after the signal."""
    task = Path(f"/proc/{pid}/task")
    children = (task / str(pid) / "children").read_text().split()
    states = [
        (thread / "stat").read_text().rpartition(")")[2].split()[0]
        for one in (pid, *map(int, children))
        for thread in Path(f"/proc/{one}/task").iterdir()
    ]
    return set(states) <= {"T", "Z"}


@contextlib.contextmanager
def _stopped_process(scheme: str, name: str, program: str) -> Iterator[Site]:
    with TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder, name)
        processes: list[subprocess.Popen[str]] = []

        def freeze() -> None:
            arguments = [sys.executable, "-c", program, str(path)]
            process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "writes\n"
            os.kill(process.pid, signal.SIGSTOP)
            processes.append(process)

        def thaw() -> None:
            for process in processes:
                process.kill()

        yield f"{scheme}://{path}", freeze, thaw


def _url(server: Any) -> str:
    url = server.url
    return str(url() if callable(url) else url)


SITES: dict[str, Callable[[], contextlib.AbstractContextManager[Site]]] = {
    "redis": lambda: _engine(RedisServer, _url),
    "postgresql": lambda: _engine(PostgreSQL, _url),
    "mariadb": lambda: _engine(MariaDB, _url),
    "dynamodb": lambda: _engine(DynamoDBLocal, _dynamodb_url),
    "azure": lambda: _engine(Azurite, azure_url),
    "s3": lambda: _engine(S3Server, s3_url),
    "sqlite": lambda: _stopped_process("sqlite", "locks.db", STOPS_IN_A_WRITE),
    "directory": lambda: _stopped_process("file", "locks", STOPS_WITH_THE_LOCKS),
}
