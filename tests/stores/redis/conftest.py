"""Servers for these tests: shared ones, and ones that a test may harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from holdfast.stores.redis import RedisStore
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisServer
from tests.engines.shared import shared


@pytest.fixture
def server() -> RedisServer:
    """A server that others use too."""
    return shared(RedisServer)


@pytest.fixture
def victim() -> Iterator[RedisServer]:
    """A server of one's own, to be harmed."""
    shared(RedisServer)  # skips or fails where there is none
    engine = RedisServer()
    engine.start()
    yield engine
    engine.stop()


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    """A store on the shared server."""
    opened = open_store(server.url)
    assert isinstance(opened, RedisStore)
    with closing(opened):
        yield opened


@pytest.fixture
def key() -> str:
    """A key that nobody else uses."""
    return uuid4().hex
