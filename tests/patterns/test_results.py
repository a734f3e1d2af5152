"""Places for results, on real engines: found as published, fenced, and gone in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import obstore.store
import pytest
import redis
import sqlalchemy as sa
from redis.cluster import RedisCluster as ClusterClient
from sqlalchemy.pool import NullPool

import holdfast
from holdfast import BadOption, Misconfigured, StaleFence
from holdfast.fencing import Fence
from holdfast.results import (
    BlobResults,
    Codec,
    DirectoryResults,
    Found,
    RedisResults,
    Results,
    SQLResults,
)
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisCluster, RedisServer
from tests.engines.shared import shared
from tests.helpers import unique

Make = Callable[..., Results]


def sql_at(url: str) -> Make:
    """A table at this address."""

    def make(**options: Any) -> Results:
        results = SQLResults(sa.create_engine(url, poolclass=NullPool), **options)
        results.setup()
        return results

    return make


PLACES = ("directory", "local", "redis", "cluster", "sqlite", "postgresql", "mysql")


@pytest.fixture(params=PLACES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a place of each kind."""
    with ExitStack() as stack:
        yield _maker(request.param, tmp_path, stack)


def _maker(kind: str, tmp_path: Path, stack: ExitStack) -> Make:
    match kind:
        case "directory":
            return partial(DirectoryResults, tmp_path / "results")
        case "local":
            return partial(BlobResults, obstore.store.LocalStore(tmp_path), prefix="results")
        case "redis":
            client = stack.enter_context(redis.Redis(port=shared(RedisServer).port))
            return partial(RedisResults, client)
        case "cluster":
            port = shared(RedisCluster).nodes[0].port
            nodes = stack.enter_context(closing(ClusterClient(host="127.0.0.1", port=port)))
            return partial(RedisResults, nodes)
        case "sqlite":
            return sql_at(f"sqlite:///{tmp_path}/results.db")
        case "postgresql":
            return sql_at(shared(PostgreSQL).url("postgresql+psycopg"))
        case _:
            return sql_at(shared(MariaDB).url("mysql+pymysql"))


def test_what_is_published_is_found(make: Make) -> None:
    """Under its own key, and by others too; until then there is nothing."""
    key, results = unique(), make()
    assert results.find(key) is None
    results.publish(key, {"rows": [1, 2, None], "é": "ü"}, Fence(key, 5))
    assert make().find(key) == Found({"rows": [1, 2, None], "é": "ü"})
    assert results.find(key.upper() + "x") is None
    results.publish(key, None, Fence(key, 6))
    assert results.find(key) == Found(None)


def test_every_key_has_a_result_of_its_own(make: Make, tmp_path: Path) -> None:
    """Whatever is in a key: no two share a result, and no result is outside of its place."""
    key, results = unique(), make()
    odd = ["{%s}", "}%s", "{}%s", "{{%s}}", ":{%s}", "%s}", "../%s", "/%s", "..%s", "%s/", "%s\\"]
    odd += ["%s ", "%s\n", "%s%%00", "%s%%41", "%sA", "%se\u0301", "%s\u00e9", "%s.json"]
    odd += ["x" * 400 + "%s", "é" * 200 + "%s"]
    keys = [key, *(one % key for one in odd), "/" * 480 + key[-8:]]
    for number, one in enumerate(keys):
        results.publish(one, number, Fence(one, 5))
    assert [results.find(one) for one in keys] == [Found(number) for number in range(len(keys))]
    outside = [path.name for path in tmp_path.iterdir()]
    assert set(outside) <= {"results", "results.db"}


def test_a_stale_maker_replaces_nothing(make: Make) -> None:
    """A result of an earlier lease is refused once a later one has published."""
    key, results = unique(), make()
    results.publish(key, "of the later one", Fence(key, 7))
    with pytest.raises(StaleFence):
        results.publish(key, "of the earlier one", Fence(key, 6))
    assert results.find(key) == Found("of the later one")


def test_a_result_has_its_time(make: Make) -> None:
    """After its ttl it is gone, and can be published again."""
    key, results = unique(), make(ttl=1)
    results.publish(key, "old", Fence(key, 1))
    while results.find(key) is not None:
        time.sleep(0.05)
    results.publish(key, "new", Fence(key, 2))


def test_bytes_and_codecs_of_ones_own(make: Make) -> None:
    """Bytes are kept as they are; a codec of the caller's is used for everything else."""
    key, results = unique(), make(codec="bytes")
    results.publish(key, b"\x00\xff", Fence(key, 1))
    assert results.find(key) == Found(b"\x00\xff")
    with pytest.raises(BadOption, match="not bytes"):
        results.publish(key, "text", Fence(key, 2))
    shouting = make(codec=Codec(lambda text: text.upper().encode(), bytes.decode))
    shouting.publish(key, "quiet", Fence(key, 3))
    assert shouting.find(key) == Found("QUIET")


def test_what_json_does_not_have(make: Make) -> None:
    """It is refused with the two ways out, and nothing is published."""
    key, results = unique(), make()
    with pytest.raises(BadOption, match=r"type object cannot be kept as JSON .* Codec"):
        results.publish(key, object(), Fence(key, 1))
    assert results.find(key) is None


def test_a_path_is_no_place(tmp_path: Path) -> None:
    """Whoever gives a path is told what to give, where the function is defined."""
    with holdfast.connect("memory:") as locks:
        with pytest.raises(BadOption, match=r"DirectoryResults\(PATH\), not str"):
            locks.once_per("k", into=str(tmp_path))  # type: ignore[arg-type]
        with pytest.raises(BadOption, match="place for results"):
            locks.once("k", into=tmp_path, make=print)  # type: ignore[arg-type]


def test_tables_that_nobody_made(tmp_path: Path) -> None:
    """The error says how to make them; any other error of the database stays what it is."""
    results = SQLResults(sa.create_engine(f"sqlite:///{tmp_path}/results.db"))
    with pytest.raises(Misconfigured, match=r"holdfast_results is missing: call setup\(\)"):
        results.find("k")
    results.setup()
    assert results.find("k") is None
    away = SQLResults(sa.create_engine(f"sqlite:///{tmp_path}/no/folder.db"))
    with pytest.raises(sa.exc.OperationalError):
        away.find("k")


def test_an_unknown_codec(tmp_path: Path) -> None:
    """It is refused at once; pickle is not among those with a name."""
    with pytest.raises(BadOption, match="codec"):
        DirectoryResults(tmp_path, codec="pickle")


def test_once_into_a_place(make: Make, tmp_path: Path) -> None:
    """The whole way, with a lease: one makes, the next one finds."""
    key = unique()
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        assert locks.once(key, into=make(), make=lambda lease: lease.key) == key
        assert locks.once(key, into=make(), make=lambda lease: "again") == key
