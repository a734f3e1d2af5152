"""A Redis, and labs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests.dropin.lossy import LossyProxy
from tests.dropin.redis_lock.lab import Face, Lab, Whose
from tests.engines.base import require
from tests.engines.redis import RedisServer


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """One Redis for all of these tests."""
    require(RedisServer)
    engine = RedisServer()
    engine.start()
    yield engine
    engine.stop()


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Face:
    """Blocking or asyncio."""
    return cast("Face", request.param)


@pytest.fixture(params=["theirs", "ours"])
def whose(request: pytest.FixtureRequest) -> Whose:
    """redis-py's lock or ours."""
    return cast("Whose", request.param)


@pytest.fixture
def lab(server: RedisServer, whose: Whose, face: Face) -> Iterator[Lab]:
    """All four kinds in turn, on an empty database."""
    lab = Lab(server.port, whose, face)
    lab.raw.flushdb()
    yield lab
    lab.close()


@pytest.fixture
def ours(server: RedisServer, face: Face) -> Iterator[Lab]:
    """Our two kinds."""
    lab = Lab(server.port, "ours", face)
    lab.raw.flushdb()
    yield lab
    lab.close()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[LossyProxy]:
    """A bad network on the way to the server."""
    with LossyProxy(server.port) as proxy:
        yield proxy
