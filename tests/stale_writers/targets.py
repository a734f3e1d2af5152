"""What is written to: each with and without a gate, by the holder's and by the second process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar

import obstore
from obstore.store import AzureStore, GCSStore, S3Store
from redis import Redis
from redis.cluster import RedisCluster as ClusterClient
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
    select,
)
from sqlalchemy import update as update_of
from sqlalchemy.pool import NullPool

from holdfast import fencing
from holdfast.fencing.gate import Fenced
from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.engines.dynamodb import DynamoDBLocal, session
from tests.engines.gcs import BUCKET, FakeGCS
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisCluster, RedisServer
from tests.engines.s3 import S3Server
from tests.engines.shared import shared

Address = dict[str, Any]
Pause = Callable[[], None]


def at_once() -> None:
    """No pause."""


class Target(ABC):
    """A place to write to, by its address. Both processes have one."""

    inside: ClassVar[bool] = False  # whether a holder can be stopped between admission and write

    def __init__(self, address: Address) -> None:
        self.address = address

    @classmethod
    @abstractmethod
    def start(cls, folder: Path) -> Address:
        """Start the server. Returns where it is, as JSON can hold it."""

    def create(self, name: str) -> None:
        """Make what is to be written, where that must be there before."""

    @abstractmethod
    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        """Write a value; None: without a gate. `pause` is called once the lease is admitted."""

    @abstractmethod
    def read(self, name: str) -> str | None:
        """What was written last."""


# --- SQL ------------------------------------------------------------------------------------------

CELLS = Table(
    "stale_cells", MetaData(),
    Column("name", String(99), primary_key=True), Column("value", String(99)),
    Column("fence", BigInteger),
)  # fmt: skip


class SQL(Target):
    """A table, with the gate in ours."""

    inside = True

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        sqlite = address["url"].startswith("sqlite")
        patience = {"timeout": 60} if sqlite else {}
        self._engine = create_engine(address["url"], poolclass=NullPool, connect_args=patience)

    @classmethod
    def start(cls, folder: Path) -> Address:
        url = cls.url(folder)
        with create_engine(url, poolclass=NullPool).begin() as tx:
            fencing.sql.setup(tx)
            CELLS.create(tx, checkfirst=True)
        return {"url": url}

    @staticmethod
    @abstractmethod
    def url(folder: Path) -> str:
        """For SQLAlchemy."""

    def create(self, name: str) -> None:
        with self._engine.begin() as tx:
            tx.execute(insert(CELLS).values(name=name))

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        with self._engine.begin() as tx:
            if lease is not None:
                fencing.sql.admit(tx, lease)
            pause()
            _put(tx, name, value)

    def read(self, name: str) -> str | None:
        with self._engine.begin() as tx:
            return tx.scalar(select(CELLS.c.value).where(CELLS.c.name == name))


def _put(tx: Connection, name: str, value: str) -> None:
    tx.execute(update_of(CELLS).where(CELLS.c.name == name).values(value=value))


class Postgres(SQL):
    """PostgreSQL."""

    @staticmethod
    def url(folder: Path) -> str:
        return shared(PostgreSQL).url("postgresql+psycopg")


class MySQL(SQL):
    """MariaDB."""

    @staticmethod
    def url(folder: Path) -> str:
        return shared(MariaDB).url("mysql+pymysql")


class SQLite(SQL):
    """A file."""

    @staticmethod
    def url(folder: Path) -> str:
        return f"sqlite:///{folder}/cells.db"


class OwnColumn(Postgres):
    """A fence column of the application's."""

    inside = False

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        with self._engine.begin() as tx:
            change = update_of(CELLS).where(CELLS.c.name == name)
            if lease is None:
                tx.execute(change.values(value=value))
                return
            fresh = fencing.sql.unless_stale(CELLS.c.fence, lease)
            done = tx.execute(change.where(fresh.condition).values(value=value, fence=fresh.value))
            fresh.check(done)


# --- DynamoDB -------------------------------------------------------------------------------------


class Item(Target):
    """An item with the condition on the write."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        resource = session().resource("dynamodb", endpoint_url=address["endpoint"])
        self._table = resource.Table("StaleCells")

    @classmethod
    def start(cls, folder: Path) -> Address:
        endpoint = shared(DynamoDBLocal).endpoint
        client = session().client("dynamodb", endpoint_url=endpoint)
        fencing.dynamodb.setup(client)
        if "StaleCells" not in client.list_tables()["TableNames"]:
            client.create_table(
                TableName="StaleCells",
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        client.close()
        return {"endpoint": endpoint}

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        item = {"id": name, "value": value}
        if lease is None:
            self._table.put_item(Item=item)
        else:
            fencing.dynamodb.put(self._table, lease, Item=item)

    def read(self, name: str) -> str | None:
        found: str | None = self._table.get_item(Key={"id": name}).get("Item", {}).get("value")
        return found


class Transaction(Item):
    """An item in a transaction with the gate."""

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        item = {"id": name, "value": value}
        if lease is None:
            self._table.put_item(Item=item)
        else:
            entries = [{"Put": {"TableName": "StaleCells", "Item": item}}]
            fencing.dynamodb.transact(self._table, lease, entries)


# --- Redis ----------------------------------------------------------------------------------------


class RedisKey(Target):
    """A key of one server."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client: Any = self.client(address["port"])

    @classmethod
    def start(cls, folder: Path) -> Address:
        return {"port": shared(RedisServer).port}

    def client(self, port: int) -> Any:
        """A client of the application's."""
        return Redis(port=port, decode_responses=True)

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        if lease is None:
            self._client.set(f"{{{name}}}:cell", value)
            return
        with fencing.redis.pipeline(self._client, lease) as p:
            p.set(f"{{{name}}}:cell", value)

    def read(self, name: str) -> str | None:
        found: str | None = self._client.get(f"{{{name}}}:cell")
        return found


class ClusterKey(RedisKey):
    """A key in a cluster."""

    @classmethod
    def start(cls, folder: Path) -> Address:
        return {"port": shared(RedisCluster).nodes[0].port}

    def client(self, port: int) -> Any:
        return ClusterClient(host="127.0.0.1", port=port, decode_responses=True)


# --- objects and files ----------------------------------------------------------------------------

HTTP: Any = {"allow_http": True}


class Blob(Target):
    """An object in a bucket."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._store: Any = self.store(address)

    @abstractmethod
    def store(self, address: Address) -> Any:
        """obstore's."""

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        if lease is None:
            obstore.put(self._store, name, value.encode())
        else:
            fencing.blob.put(self._store, name, value, lease)

    def read(self, name: str) -> str | None:
        return bytes(obstore.get(self._store, name).bytes()).decode()


class Azure(Blob):
    """Azurite."""

    @classmethod
    def start(cls, folder: Path) -> Address:
        shared(Azurite).create_container("stale")
        return {"endpoint": shared(Azurite).endpoint}

    def store(self, address: Address) -> Any:
        return AzureStore("stale", account_name=ACCOUNT, account_key=ACCOUNT_KEY,
                          endpoint=address["endpoint"], client_options=HTTP)  # fmt: skip


class S3(Blob):
    """moto."""

    @classmethod
    def start(cls, folder: Path) -> Address:
        shared(S3Server).create_bucket("stale")
        return {"endpoint": shared(S3Server).endpoint}

    def store(self, address: Address) -> Any:
        return S3Store("stale", endpoint=address["endpoint"], region="us-east-1",
                       access_key_id="h", secret_access_key="h", client_options=HTTP)  # fmt: skip


class GCS(Blob):
    """What we ask of Google's, played by ourselves."""

    @classmethod
    def start(cls, folder: Path) -> Address:
        return {"key": shared(FakeGCS).service_account_key}

    def store(self, address: Address) -> Any:
        return GCSStore(BUCKET, service_account_key=address["key"], client_options=HTTP)


class File(Target):
    """A file in a directory."""

    @classmethod
    def start(cls, folder: Path) -> Address:
        (folder / "files").mkdir()
        return {"folder": str(folder / "files")}

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        path = Path(self.address["folder"], name)
        if lease is None:
            path.write_text(value)
        else:
            fencing.files.write(path, value, lease)

    def read(self, name: str) -> str | None:
        return Path(self.address["folder"], name).read_text()


class Service(Target):
    """A service in front of a database, with the middleware; see `service`."""

    @classmethod
    def start(cls, folder: Path) -> Address:
        from tests.stale_writers.service import serve

        address = Postgres.start(folder)
        return {**address, "port": serve(Postgres(address))}

    def create(self, name: str) -> None:
        Postgres(self.address).create(name)

    def write(self, name: str, value: str, lease: Fenced | None, pause: Pause = at_once) -> None:
        sent = {} if lease is None else fencing.http.headers(lease)
        status, body = self._ask("PUT", f"/{name}", value, sent)
        fencing.http.raise_if_stale(status, body)
        assert status == 200, body

    def read(self, name: str) -> str | None:
        return self._ask("GET", f"/{name}", "", {})[1].decode()

    def _ask(self, method: str, path: str, body: str, sent: dict[str, str]) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.address["port"], timeout=120)
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        got = answer.status, answer.read()
        connection.close()
        return got


TARGETS: dict[str, type[Target]] = {
    "postgresql": Postgres, "mysql": MySQL, "sqlite": SQLite, "own-column": OwnColumn,
    "dynamodb": Item, "dynamodb-transaction": Transaction, "redis": RedisKey,
    "redis-cluster": ClusterKey, "azure": Azure, "s3": S3, "gcs": GCS, "file": File,
    "http": Service,
}  # fmt: skip
