"""Labs on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest

from tests.dropin.dynamodb import SERVICES
from tests.dropin.lossy import LossyProxy
from tests.dropin.python_dynamodb_lock.lab import Lab, Whose
from tests.engines.shared import shared


def opened(service: str, whose: Whose = "ours") -> Iterator[Lab]:
    """A lab while a test runs."""
    with closing(Lab(shared(SERVICES[service]).endpoint, whose)) as lab:
        yield lab


@pytest.fixture(params=["theirs-local", "ours-local", "ours-old", "ours-moto"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The original on one server, and ours on three."""
    whose, service = request.param.split("-")
    yield from opened(service, cast("Whose", whose))


@pytest.fixture(params=["local", "old"])
def ours(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Ours, where a refusal shows the item and replies tell the time, and where not."""
    yield from opened(request.param)


@pytest.fixture
def local() -> Iterator[Lab]:
    """Ours on DynamoDB Local."""
    yield from opened("local")


@pytest.fixture
def moto() -> Iterator[Lab]:
    """Ours on moto."""
    yield from opened("moto")


@pytest.fixture
def proxy(ours: Lab) -> Iterator[LossyProxy]:
    """A bad network on the way to the server."""
    with LossyProxy(int(ours.endpoint.rsplit(":", 1)[1])) as proxy:
        yield proxy
