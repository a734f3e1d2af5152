"""The servers under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.base import require
from tests.engines.shared import shared
from tests.stores.sql.servers import ENGINES, Server


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that other tests use too."""
    yield from _shared(request.param)


@pytest.fixture
def postgres() -> Iterator[Server]:
    """PostgreSQL only."""
    yield from _shared("postgresql")


@pytest.fixture
def mariadb() -> Iterator[Server]:
    """MariaDB only."""
    yield from _shared("mysql")


@pytest.fixture(params=ENGINES)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that the test may kill."""
    require(ENGINES[request.param])
    engine = ENGINES[request.param]()
    engine.start()
    server = Server(request.param, engine)
    yield server
    server.close()
    engine.stop()


def _shared(kind: str) -> Iterator[Server]:
    server = Server(kind, shared(ENGINES[kind]))
    yield server
    server.close()
