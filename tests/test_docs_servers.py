"""Code in the docs that needs a server runs against the engines of the tests.

The services of Amazon, Microsoft and Google are found by environment variables, as the drivers
read them; other servers by another host and port in the page's text.
"""

from __future__ import annotations

import runpy
import textwrap
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import boto3
import obstore
import pytest
import redis
import redis.asyncio
import requests
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.desk import LIMIT_S, Desk, work
from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.engines.dynamodb import CREDENTIALS, DynamoDBLocal
from tests.engines.gcs import BUCKET, FakeGCS
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisCluster, RedisServer
from tests.engines.s3 import S3Server
from tests.engines.shared import shared
from tests.pages import page


@pytest.fixture
def dynamodb(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Where boto3 finds DynamoDB from now on, and a client; tables are dropped afterwards."""
    config = desk.folder / "aws"
    config.write_text("[profile etl]\naws_access_key_id = test\naws_secret_access_key = test\n")
    service = {"AWS_ENDPOINT_URL_DYNAMODB": shared(DynamoDBLocal).endpoint}
    for name, value in {**CREDENTIALS, **service, "AWS_CONFIG_FILE": str(config)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    client = boto3.client("dynamodb")
    desk.names |= {"boto3": boto3, "client": client}
    before = client.list_tables()["TableNames"]
    yield client
    for table in set(client.list_tables()["TableNames"]) - set(before):
        client.delete_table(TableName=table)
    client.close()


def create_table(client: Any, name: str, key: str) -> None:
    """A table with one string as its key."""
    client.create_table(
        TableName=name, BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
    )  # fmt: skip


@pytest.fixture
def s3(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Where obstore finds S3 from now on."""
    server = shared(S3Server)
    service = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true"}
    for name, value in {**CREDENTIALS, **service}.items():
        monkeypatch.setenv(name, value)
    desk.names["obstore"] = obstore
    return server


def test_dynamodb(desk: Desk, dynamodb: Any) -> None:
    """The table is set up by the command of the page; then by a URL, a client, a table and a
    session with a profile."""
    (setup,) = page("stores/dynamodb", "sh")
    assert "CloudFormation" in desk.shell(setup)
    by_url, by_objects = page("stores/dynamodb")
    for block in (by_url, by_objects):
        desk.run(block)
    assert desk.lock_with_each() == 4


def test_buckets(desk: Desk, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the page's lines opens its service: S3, Azure twice, Google's and a directory."""
    azurite = shared(Azurite)
    for name, value in {
        "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY, "AZURE_STORAGE_ENDPOINT": azurite.endpoint,
        "GOOGLE_SERVICE_ACCOUNT_KEY": shared(FakeGCS).service_account_key,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    s3.create_bucket("my-bucket")
    azurite.create_container("my-container")
    (block,) = page("stores/blob")
    ours = {
        "myaccount": ACCOUNT, "gs://my-bucket": f"gs://{BUCKET}", "/mnt/shared": str(desk.folder)
    }  # fmt: skip
    desk.run(replaced(block, ours))
    assert desk.lock_with_each() == 5


def replaced(block: str, by: dict[str, str]) -> str:
    """A block with other hosts and names in it, each of which must be there."""
    for old, new in by.items():
        assert old in block, old
        block = block.replace(old, new)
    return block


def test_postgresql(desk: Desk) -> None:
    """By a URL, on an engine, and for asyncio."""
    server = shared(PostgreSQL)
    url = server.url("postgresql+psycopg")
    desk.names |= {
        "sqlalchemy": sqlalchemy,
        "async_engine": create_async_engine(url, poolclass=NullPool),
    }
    (block,) = page("stores/postgresql")
    urls = {
        "postgresql://user:password@db.example/warehouse": server.url(),
        "postgresql+psycopg://…": url,
        "postgresql://…": server.url(),
    }
    desk.run(replaced(block, urls))
    assert desk.lock_with_each() == 4


def test_mysql(desk: Desk) -> None:
    """By a URL, on an engine, and for asyncio."""
    server = shared(MariaDB)
    desk.names["sqlalchemy"] = sqlalchemy
    (block,) = page("stores/mysql")
    urls = {
        "mysql://user:password@db.example/warehouse": server.url(),
        "mysql+pymysql://…": server.url("mysql+pymysql"),
        "mysql://…": server.url(),
    }
    desk.run(replaced(block, urls))
    assert desk.lock_with_each() == 3


def test_redis_clients(desk: Desk) -> None:
    """On a client of a server, and on one of a cluster."""
    server, cluster = shared(RedisServer), shared(RedisCluster)
    _, block = page("stores/redis")
    clients = {
        'redis.Redis(host="localhost"': f'redis.Redis(host="127.0.0.1", port={server.port}',
        'RedisCluster(host="localhost"': (
            f'RedisCluster(host="127.0.0.1", port={cluster.nodes[0].port}'
        ),
    }
    desk.run(replaced(block, clients))
    assert desk.lock_with_each() == 2


def test_the_drop_in_for_redis_py(desk: Desk) -> None:
    """First with a client that blocks, then with one for asyncio."""
    (block,) = page("dropin-redis-lock")
    blocking, line, waiting = block.partition("from holdfast.dropin.redis_lock.asyncio")
    port = shared(RedisServer).port
    with redis.Redis(port=port) as client:
        desk.names["client"] = client
        desk.run(blocking)
    connect = f"client = redis.asyncio.Redis(port={port})\n"
    desk.run(connect + line + waiting + "await client.aclose()\n")


def test_the_drop_in_for_dynamodb_lock(desk: Desk, dynamodb: Any) -> None:
    """The example, and the code of a pipeline with and without a table."""
    create_table(dynamodb, "ingestor-locks", "lock_key")
    example, pipeline = page("dropin-dynamodb-lock")
    desk.run(example)
    ran: list[str] = []
    desk.names |= {"logger": SimpleNamespace(warning=work), "run": lambda: ran.append("run")}
    run = desk.define("pipeline(app_config, dataset_id, run_id)", pipeline)
    for table in ("ingestor-locks", None):
        run(SimpleNamespace(dynamodb_lock_table=table), "orders", "run-123")
    assert ran == ["run", "run"]
    desk.names["lock_manager"].acquire("pipeline:orders", "run-122")
    run(SimpleNamespace(dynamodb_lock_table="ingestor-locks"), "orders", "run-123")
    assert ran == ["run", "run"]


def test_the_drop_in_for_python_dynamodb_lock(desk: Desk, dynamodb: Any) -> None:
    """With the table that the original makes."""
    from holdfast.dropin.python_dynamodb_lock import DynamoDBLockClient

    DynamoDBLockClient.create_dynamodb_table(dynamodb)
    desk.names["tell"] = work
    (block,) = page("dropin-python-dynamodb-lock")
    desk.run(block)


def test_the_drop_in_for_mops(desk: Desk) -> None:
    """The remote joins the lease while its orchestrator holds it."""
    (block,) = page("dropin-mops-lock")
    head, line, tail = block.partition("remote = ")
    joined: list[str] = []

    def start_remote(memo_uri: str, writer_id: str) -> None:
        desk.names["expected_writer_id"] = writer_id
        desk.run(line + tail + "stop()\n")
        joined.append(writer_id)

    desk.names |= {"memo_uri": f"file://{desk.folder}/memo", "start_remote": start_remote}
    desk.run(head)
    assert joined == [desk.names["acquired"].writer_id]


def test_fenced_writes_to_dynamodb(desk: Desk, dynamodb: Any) -> None:
    """Single writes, and a transaction with the reader's own parts in it."""
    create_table(dynamodb, "reports", "id")
    single, together = page("fencing")[3:5]
    with desk.names["locks"].acquire("column") as lease:
        desk.names["lease"] = lease
        desk.run(single)
        put = {"TableName": "reports", "Item": {"id": {"S": "8"}}}
        delete = {"TableName": "reports", "Key": {"id": {"S": "7"}}}
        desk.run(
            replaced(
                together, {'"Put": ...': f'"Put": {put}', '"Delete": ...': f'"Delete": {delete}'}
            )
        )
    assert [item["id"]["S"] for item in dynamodb.scan(TableName="reports")["Items"]] == ["8"]


def test_fenced_writes_to_a_bucket(desk: Desk, s3: S3Server) -> None:
    """An object is written and deleted."""
    s3.create_bucket("reports")
    with desk.names["locks"].acquire("column") as lease:
        desk.names |= {"lease": lease, "data": b"1,2"}
        desk.run(page("fencing")[6])


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_fenced_requests(desk: Desk) -> None:
    """What the client sends is what the service of the page admits."""
    _, setup, *_, send, serve = page("fencing")
    desk.run(setup)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        assert environ["holdfast.gate"] is not None
        start_response("204 No Content", [])
        return []

    desk.names |= {"app": app, "requests": requests, "order": {"id": 7}}
    desk.run(serve)
    with (
        make_server("127.0.0.1", 0, desk.names["app"], handler_class=_Quiet) as server,
        desk.names["locks"].acquire("orders") as lease,
    ):
        desk.names |= {"lease": lease, "url": f"http://127.0.0.1:{server.server_port}/"}
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        desk.run(f"answer = {send}")
        serving.join()
    assert desk.names["answer"].status_code == 204


def test_orchestrators(desk: Desk, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job joins the orchestrator's lease, works and writes; then the result is found."""
    s3.create_bucket("my-bucket")
    bucket = obstore.store.S3Store("my-bucket")
    orchestrator, worker = page("orchestrators")
    started: list[str] = []

    def start_job(call: str, env: dict[str, str]) -> Any:
        started.append(call)
        monkeypatch.setenv("HOLDFAST_TICKET", env["HOLDFAST_TICKET"])
        monkeypatch.setenv("HOLDFAST_URL", "s3://my-bucket/locks")
        job = Desk(desk.folder, {"compute": lambda: b"42", "bucket": bucket, "call": call})
        return SimpleNamespace(wait=lambda: job.run(worker))

    def read(call: str) -> bytes | None:
        try:
            return bytes(obstore.get(bucket, call).bytes())
        except FileNotFoundError:
            return None

    desk.names |= {"start_job": start_job, "results": SimpleNamespace(read=read)}
    desk.run(orchestrator)
    assert [desk.names["obtain"]("report") for _ in range(2)] == [b"42", b"42"]
    assert started == ["report"]


def test_a_worker_joins_by_the_command_line(desk: Desk) -> None:
    """Both pages have the same line; one names the option in a comment, too."""
    desk.script("worker", 'echo "$HOLDFAST_KEY"')
    lines = {
        page(name, "sh")[-1].partition("  #")[0] for name in ("orchestrators", "howto/orchestrator")
    }
    (line,) = {line.strip() for line in lines}
    with desk.names["locks"].acquire("job") as lease:
        assert desk.shell(line, HOLDFAST_TICKET=lease.share()) == "job\n"


def test_once_into_a_bucket(desk: Desk, s3: S3Server) -> None:
    """The command's output is kept in the bucket, and nobody makes it twice."""
    s3.create_bucket("my-bucket")
    desk.script("make-report", "echo made >> made; echo 1,2")
    (line,) = page("once", "sh")
    for _ in range(2):
        desk.shell(line)
        assert (desk.folder / "report.csv").read_text() == "1,2\n"
    assert (desk.folder / "made").read_text() == "made\n"


CELERY_BEFORE = """
import redis
import sqlalchemy

engine = sqlalchemy.create_engine("sqlite:///data.db")


def compute(month):
    return {"month": month}


def rows_of(filter_id):
    return [filter_id]


def refresh_one(filter_id):
    pass
"""

CELERY_BETWEEN = """
app.conf.result_backend = app.conf.broker_url
with engine.begin() as tx:
    fencing.sql.setup(tx)
engine.dispose()


@app.task
@exclusive(key="all")
def refresh_all(filters):
"""

CELERY_HAND_OVER = """

@app.task
@exclusive(key="audience:{filter_id}")
def hand(rows, filter_id):
"""


def indented(block: str) -> str:
    """A block as the body of a function."""
    return textwrap.indent(block, "    ")


def celery_app(desk: Desk) -> str:
    """The page's blocks, one after the other in a module. Returns the line that sends a chain."""
    first, making_way, handing_over, sending, once = page("celery")
    handing_over, line, chain = handing_over.partition("chain(evaluate")
    importing, hand_over_to = sending.split("\n\n")
    # Two examples of the page have a function of this name.
    own = {"tx.execute(...)": "tx.exec_driver_sql('SELECT 1')", "evaluate(": "rows_of("}
    module = "".join([
        CELERY_BEFORE, replaced(first, own),
        CELERY_BETWEEN, indented(making_way), "\n\n", handing_over, importing, CELERY_HAND_OVER,
        indented(hand_over_to), "\n\n", once,
    ])  # fmt: skip
    port = shared(RedisServer).port
    ours = {"cache:6379": f"127.0.0.1:{port}", 'Redis("cache")': f"Redis(port={port}, db=4)"}
    (desk.folder / "app.py").write_text(replaced(module, ours))
    return line + chain


def test_celery(desk: Desk) -> None:
    """A worker runs the tasks of the page; beat leads by both commands that the docs have."""
    chain = celery_app(desk)
    names = runpy.run_path("app.py", run_name="app")
    app = names["app"]
    worker = "celery -A app worker --pool solo --loglevel INFO --without-gossip --without-mingle"
    with desk.started(worker, " ready."):
        calls = {
            "refresh.delay(7)": None, "refresh_all.delay([7])": None, chain: None,
            'hand.delay(["row"], 7)': None, 'report.delay("2026-11")': {"month": "2026-11"},
        }  # fmt: skip
        for call, result in calls.items():
            assert eval(call, names).get(timeout=LIMIT_S) == result
    app.close()
    (leading_scheduler,) = page("celery", "sh")
    with desk.started(leading_scheduler.strip(), "is starting"):
        pass
    commands = {page("leading", "sh")[0], page("howto/scheduler", "sh")[-1]}
    (lead,) = commands
    with desk.started(lead.strip(), "is starting"):
        pass
