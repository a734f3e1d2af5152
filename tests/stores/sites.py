"""The servers that the walk goes to, and how a store on them is reached through a port."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from tests.conformance.blob_targets import azure_url, gcs_url, s3_url
from tests.engines.azurite import Azurite
from tests.engines.dynamodb import DynamoDBLocal, session
from tests.engines.gcs import FakeGCS
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.s3 import S3Server
from tests.engines.shared import shared
from tests.stores.lane import Site

TABLE = "Walk"


def _redis() -> Site:
    def through(place: str, port: int, timeout_s: float) -> Store:
        return open_store(f"redis://127.0.0.1:{port}/0?socket_timeout={timeout_s}")

    return Site(shared(RedisServer).port, through)


def _sql(server: Any) -> Site:
    def through(place: str, port: int, timeout_s: float) -> Store:
        return open_store(server.url(port=str(port), query=f"timeout_s={timeout_s}"))

    store = open_store(server.url())
    store.setup()
    store.close()
    return Site(server.port, through, quick_s=1.0)


def _dynamodb() -> Site:
    def through(place: str, port: int, timeout_s: float) -> Store:
        endpoint = f"http://127.0.0.1:{port}"
        options = {"clock_margin_s": 0, "timeout_s": timeout_s}
        return open_store(session(), table=TABLE, endpoint_url=endpoint, **options)

    server = shared(DynamoDBLocal)
    store = through("", server.port, 30)
    store.setup()
    store.close()
    return Site(server.port, through)


def _blob(port: int, url_of_a_place: str) -> Site:
    """A prefix for each place."""

    def through(place: str, port: int, timeout_s: float) -> Store:
        url = re.sub(r"(127\.0\.0\.1(?::|%3A))\d+", rf"\g<1>{port}", url_of_a_place)
        head, question, options = url.partition("?")
        return open_store(f"{head}/{place}{question}{options}&timeout_s={timeout_s}")

    return Site(port, through, lists_all=True)


def _azure() -> Site:
    return _blob(shared(Azurite).port, azure_url(shared(Azurite)))


def _s3() -> Site:
    return _blob(shared(S3Server).port, s3_url(shared(S3Server)))


def _gcs() -> Site:
    return _blob(shared(FakeGCS).port, gcs_url(shared(FakeGCS)))


SITES: dict[str, Callable[[], Site]] = {
    "redis": _redis,
    "postgresql": lambda: _sql(shared(PostgreSQL)),
    "mysql": lambda: _sql(shared(MariaDB)),
    "dynamodb": _dynamodb,
    "az": _azure,
    "s3": _s3,
    "gs": _gcs,
}
