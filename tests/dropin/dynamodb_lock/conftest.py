"""Labs on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.dropin.dynamodb import SERVICES
from tests.dropin.dynamodb_lock.lab import Lab
from tests.dropin.lossy import LossyProxy
from tests.engines.shared import shared


def opened(service: str) -> Iterator[Lab]:
    """A lab while a test runs."""
    with closing(Lab(shared(SERVICES[service]).endpoint)) as lab:
        yield lab


@pytest.fixture(params=["local", "old", "moto"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A table on each kind of server."""
    yield from opened(request.param)


@pytest.fixture(params=["local", "old"])
def shy(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Where a refusal shows the item, and where not."""
    yield from opened(request.param)


@pytest.fixture(params=["local", "moto"])
def timed(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Where replies tell the time."""
    yield from opened(request.param)


@pytest.fixture
def local() -> Iterator[Lab]:
    """On DynamoDB Local."""
    yield from opened("local")


@pytest.fixture
def proxy(shy: Lab) -> Iterator[LossyProxy]:
    """A bad network on the way to the server."""
    with LossyProxy(int(shy.endpoint.rsplit(":", 1)[1])) as proxy:
        yield proxy
