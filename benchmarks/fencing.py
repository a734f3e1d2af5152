"""What a gate costs: the same write without one and behind one, in turns.

    python -m benchmarks.fencing [--rounds 15] [--writes 40] [TARGET ...]

Requests are counted by a proxy on the way to the server (statements, for SQLite); times are the
best round's mean for one write, with the time of this process's processor beside it.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from benchmarks.wire import HttpProxy
from holdfast import fencing
from tests.engines.proxy import Proxy

Write = Callable[[], object]
TABLE = "CREATE TABLE IF NOT EXISTS cells (name varchar(99) PRIMARY KEY, value varchar(99))"
WARM_UPS = 7  # the first one connects and sends the script; psycopg prepares after five
ROW = "INSERT INTO cells VALUES ('x', '')"
CHANGE = "UPDATE cells SET value = 'y' WHERE name = 'x'"


class Subject(NamedTuple):
    """A write, without a gate and behind one."""

    plain: Write
    guarded: Write
    requests: Callable[[], int] | None  # None: nothing goes over a wire


# --- what is measured ---------------------------------------------------------------------------


@contextmanager
def _sqlalchemy(url: str, lease: Any, requests: Callable[[], int]) -> Iterator[Subject]:
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.begin() as tx:
        fencing.sql.setup(tx)
        for statement in ("DROP TABLE IF EXISTS cells", TABLE, ROW):
            tx.execute(text(statement))
    change = text(CHANGE)

    def plain() -> None:
        with engine.begin() as tx:
            tx.execute(change)

    def guarded() -> None:
        with engine.begin() as tx:
            fencing.sql.admit(tx, lease)
            tx.execute(change)

    yield Subject(plain, guarded, requests)
    engine.dispose()


@contextmanager
def postgresql(lease: Any, folder: Path) -> Iterator[Subject]:
    """A transaction with one UPDATE."""
    from tests.engines.postgres import PostgreSQL
    from tests.engines.shared import shared

    with Proxy(shared(PostgreSQL).port) as wire:
        url = shared(PostgreSQL).url("postgresql+psycopg", port=str(wire.port))
        with _sqlalchemy(url, lease, lambda: wire.requests) as subject:
            yield subject


@contextmanager
def mysql(lease: Any, folder: Path) -> Iterator[Subject]:
    """The same on MariaDB."""
    from tests.engines.mariadb import MariaDB
    from tests.engines.shared import shared

    with Proxy(shared(MariaDB).port) as wire:
        url = shared(MariaDB).url("mysql+pymysql", port=str(wire.port))
        with _sqlalchemy(url, lease, lambda: wire.requests) as subject:
            yield subject


@contextmanager
def sqlite(lease: Any, folder: Path) -> Iterator[Subject]:
    """The same in a file with a write-ahead log, by the standard library's driver."""
    connection = sqlite3.connect(folder / "cells.db")
    connection.execute("PRAGMA journal_mode = WAL")
    with connection:
        fencing.sql.setup(connection)
        connection.execute(TABLE)
        connection.execute(ROW)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    def plain() -> None:
        with connection:
            connection.execute(CHANGE)

    def guarded() -> None:
        with connection:
            fencing.sql.admit(connection, lease)
            connection.execute(CHANGE)

    yield Subject(plain, guarded, lambda: len(statements))
    connection.close()


@contextmanager
def redis(lease: Any, folder: Path) -> Iterator[Subject]:
    """Two commands in a transaction."""
    from redis import Redis

    from tests.engines.redis import RedisServer
    from tests.engines.shared import shared

    with Proxy(shared(RedisServer).port) as wire, Redis(port=wire.port) as client:

        def plain() -> None:
            with client.pipeline() as p:
                p.set("a", 1).set("b", 2).execute()

        def guarded() -> None:
            with fencing.redis.pipeline(client, lease) as p:
                p.set("a", 1).set("b", 2)

        yield Subject(plain, guarded, lambda: wire.requests)


@contextmanager
def _dynamodb(folder: Path) -> Iterator[tuple[Any, HttpProxy]]:
    from tests.engines.dynamodb import DynamoDBLocal, session
    from tests.engines.shared import shared

    with HttpProxy(shared(DynamoDBLocal).port) as wire:
        endpoint = f"http://127.0.0.1:{wire.port}"
        client = session().client("dynamodb", endpoint_url=endpoint)
        if "cells" not in client.list_tables()["TableNames"]:
            client.create_table(
                TableName="cells",
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        fencing.dynamodb.setup(client)
        yield client, wire
        client.close()


ITEM = {"id": {"S": "x"}, "body": {"S": "y"}}


@contextmanager
def dynamodb(lease: Any, folder: Path) -> Iterator[Subject]:
    """A put."""
    with _dynamodb(folder) as (client, wire):
        yield Subject(
            lambda: client.put_item(TableName="cells", Item=ITEM),
            lambda: fencing.dynamodb.put(client, lease, TableName="cells", Item=ITEM),
            lambda: wire.requests,
        )


@contextmanager
def dynamodb_transaction(lease: Any, folder: Path) -> Iterator[Subject]:
    """A put in a transaction."""
    entries = [{"Put": {"TableName": "cells", "Item": ITEM}}]
    with _dynamodb(folder) as (client, wire):
        yield Subject(
            lambda: client.transact_write_items(TransactItems=entries),
            lambda: fencing.dynamodb.transact(client, lease, entries),
            lambda: wire.requests,
        )


@contextmanager
def azure(lease: Any, folder: Path) -> Iterator[Subject]:
    """An object in a container."""
    import obstore
    from obstore.store import AzureStore

    from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite
    from tests.engines.shared import shared

    server = shared(Azurite)
    server.create_container("cells")
    with HttpProxy(server.port) as wire:
        store = AzureStore(
            "cells", account_name=ACCOUNT, account_key=ACCOUNT_KEY,
            endpoint=server.endpoint.replace(str(server.port), str(wire.port)),
            client_options={"allow_http": True},
        )  # fmt: skip
        yield Subject(
            lambda: obstore.put(store, "plain", b"y"),
            lambda: fencing.blob.put(store, "guarded", b"y", lease),
            lambda: wire.requests,
        )


@contextmanager
def file(lease: Any, folder: Path) -> Iterator[Subject]:
    """A file that is renamed into place."""

    def plain() -> None:
        (folder / "new").write_bytes(b"y")
        (folder / "new").replace(folder / "plain")

    yield Subject(plain, lambda: fencing.files.write(folder / "guarded", b"y", lease), None)


SUBJECTS = {
    "postgresql": postgresql, "mysql": mysql, "sqlite": sqlite, "redis": redis,
    "dynamodb": dynamodb, "dynamodb-transaction": dynamodb_transaction, "azure": azure,
    "file": file,
}  # fmt: skip


# --- how ----------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Of one write."""

    requests: float | None
    wall_us: float
    cpu_us: float


def measure(subject: Subject, rounds: int, writes: int) -> tuple[Cost, Cost]:
    """Returns what it costs without a gate and behind one: the best of rounds taken in turns."""
    turns: tuple[list[Cost], list[Cost]] = ([], [])
    for call in WARM_UPS * (subject.plain, subject.guarded):
        call()
    for _ in range(rounds):
        for call, costs in zip((subject.plain, subject.guarded), turns, strict=True):
            costs.append(_round(call, subject.requests, writes))
    plain, guarded = (_best(costs) for costs in turns)
    return plain, guarded


def _round(call: Write, requests: Callable[[], int] | None, writes: int) -> Cost:
    before = requests() if requests else 0
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(writes):
        call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sent = (requests() - before) / writes if requests else None
    return Cost(sent, wall / writes * 1e6, cpu / writes * 1e6)


def _best(costs: list[Cost]) -> Cost:
    sent = costs[0].requests
    return Cost(sent, min(c.wall_us for c in costs), min(c.cpu_us for c in costs))


def main(arguments: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fencing", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--writes", type=int, default=40, help="in each round")
    given = parser.parse_args(arguments)
    print("| target | requests | behind the gate | µs | behind the gate | µs of CPU | behind it |")
    print("|---|---|---|---|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.connect("memory://") as locks,
        locks.acquire("benchmark", ttl=600) as lease,
    ):
        for name in given.targets or SUBJECTS:
            with SUBJECTS[name](lease, Path(folder)) as subject:
                plain, guarded = measure(subject, given.rounds, given.writes)
            print(_line(name, plain, guarded), flush=True)


def _line(name: str, plain: Cost, guarded: Cost) -> str:
    sent = ["–" if cost.requests is None else f"{cost.requests:.0f}" for cost in (plain, guarded)]
    times = (plain.wall_us, guarded.wall_us, plain.cpu_us, guarded.cpu_us)
    return f"| {name} | {' | '.join(sent)} | {' | '.join(f'{each:,.0f}' for each in times)} |"


if __name__ == "__main__":
    main()
