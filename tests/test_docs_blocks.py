"""Code in the docs that is no program by itself runs, too, with a little work to do around it."""

from __future__ import annotations

import prometheus_client
import pytest
import redis
import sqlalchemy

from holdfast.results import DirectoryResults
from holdfast.testing import ChaosStore, HandClock
from tests.desk import Desk, work
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.pages import page


class EnoughError(Exception):
    """Ends work that goes on for ever."""


@pytest.mark.parametrize("name", ["index", "errors", "events", "moving", "time", "stores/memory"])
def test_blocks_run_one_after_the_other(name: str, desk: Desk) -> None:
    """With nothing but the names that they mention."""
    for block in page(name):
        desk.run(block)


def test_tests_of_a_user(desk: Desk, holdfast_chaos: ChaosStore, holdfast_time: HandClock) -> None:
    """The page's own tests pass, with the fixtures that they ask for."""
    by_fixture, from_a_seed, fixture = page("testing")
    desk.run(by_fixture)
    outages = [name for name in desk.names if name.startswith("test_")]
    assert len(outages) == 2
    for name in outages:
        desk.names[name](holdfast_chaos, holdfast_time)
    desk.run(from_a_seed)
    desk.names["test_it_stops_when_the_lease_is_lost"]()
    desk.run(fixture)


def test_one_result_for_many(desk: Desk) -> None:
    """The result is made where there is none."""
    made: list[str] = []
    desk.names |= {
        "load_report": lambda: made[-1] if made else None,
        "compute_report": lambda lease: made.append("report"),
        "results": DirectoryResults("results"),
        "compute": lambda month: {"month": month},
    }
    for block in page("once"):
        desk.run(block)
    assert made == ["report"]
    assert desk.names["report"]("2026-11") == {"month": "2026-11"}


def test_leading(desk: Desk) -> None:
    """Each program leads, and works once."""

    def tick(fence: int) -> None:
        raise EnoughError(fence)

    async def tick_later(fence: int) -> None:
        tick(fence)

    class Job:
        work = staticmethod(tick)

    threads, tasks, watched = page("leading")
    desk.names |= {"tick": tick, "jobs": lambda: [Job()]}
    for block in (threads, watched):
        with pytest.raises(EnoughError):
            desk.run(block)
    desk.names["tick"] = tick_later
    with pytest.raises(EnoughError):
        desk.run(tasks)


def test_metrics_and_traces(desk: Desk) -> None:
    """The metrics are in the default registry, as the page says."""
    for block in page("metrics"):
        desk.run(block)
    try:
        assert b"holdfast_held" in prometheus_client.generate_latest()
    finally:
        prometheus_client.REGISTRY.unregister(desk.names["metrics"])


SELECT = ("tx.execute(...)", "tx.exec_driver_sql('SELECT 1')")


def test_fenced_writes(desk: Desk) -> None:
    """In a transaction, in a column, in Redis, in files and over HTTP."""
    admitted, setup, own_column, _, _, in_redis, _, in_files, _, over_http = page("fencing")
    desk.run(setup)
    for block in (admitted, page("safety")[0]):
        desk.run(block.replace(*SELECT))
    report = sqlalchemy.Table(
        "report", sqlalchemy.MetaData(), sqlalchemy.Column("id", sqlalchemy.Integer),
        sqlalchemy.Column("body", sqlalchemy.Text),
        sqlalchemy.Column("fence", sqlalchemy.BigInteger),
    )  # fmt: skip
    with desk.names["engine"].begin() as tx, desk.names["locks"].acquire("column") as lease:
        report.create(tx)
        tx.execute(sqlalchemy.insert(report).values(id=7))
        more = {"tx": tx, "report": report, "update": sqlalchemy.update, "body": "new"}
        desk.names |= {**more, "lease": lease}
        desk.run(own_column)
        assert tx.execute(sqlalchemy.select(report.c.body)).scalar() == "new"
        (desk.folder / "reports").mkdir()
        (desk.folder / "made.csv").write_text("made")
        desk.names |= {"data": b"1,2"}
        desk.run(in_files)
        desk.names |= {"app": work}
        desk.run(over_http)
        with redis.Redis(port=shared(RedisServer).port, db=9) as client:
            desk.names["client"] = client
            desk.run(in_redis)
            assert client.get("total") == b"12"


def test_stores(desk: Desk) -> None:
    """SQLite and Redis by a URL, Redis by a client, a directory."""
    (sqlite,), (by_url, _) = page("stores/sqlite"), page("stores/redis")
    desk.run(sqlite.replace("/var/lib/app", str(desk.folder)))
    desk.names["locks"].close()
    desk.run(by_url.replace("localhost:6379", f"127.0.0.1:{shared(RedisServer).port}"))
    desk.names["locks"].close()
    directory = page("stores/blob")[0].splitlines()[-1]
    desk.run(directory.replace("/mnt/shared", str(desk.folder)))


def test_the_drop_in_for_ensembl(desk: Desk) -> None:
    """On an SQLite file instead of MySQL."""
    (block,) = page("dropin-resource-lock")
    desk.run(block.replace("mysql://user:password@host:3306/resource_lock", "sqlite:///old.db"))
