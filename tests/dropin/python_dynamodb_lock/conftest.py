"""Labs on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest

from tests.dropin.dynamodb import SERVICES
from tests.dropin.lossy import LossyProxy
from tests.dropin.python_dynamodb_lock.lab import Lab, Whose
from tests.engines.dynamodb import DynamoDBLocal
from tests.engines.moto import Moto
from tests.engines.shared import shared


@pytest.fixture(params=["theirs-local", "ours-local", "ours-old", "ours-moto"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The original on one server, and ours on three."""
    whose, service = request.param.split("-")
    with closing(Lab(shared(SERVICES[service]).endpoint, cast("Whose", whose))) as lab:
        yield lab


@pytest.fixture(params=["local", "old"])
def ours(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Ours, where a refusal shows the item and replies tell the time, and where not."""
    with closing(Lab(shared(SERVICES[request.param]).endpoint)) as lab:
        yield lab


@pytest.fixture
def local() -> Iterator[Lab]:
    """Ours on DynamoDB Local."""
    with closing(Lab(shared(DynamoDBLocal).endpoint)) as lab:
        yield lab


@pytest.fixture
def moto() -> Iterator[Lab]:
    """Ours on moto."""
    with closing(Lab(shared(Moto).endpoint)) as lab:
        yield lab


@pytest.fixture
def proxy(ours: Lab) -> Iterator[LossyProxy]:
    """A bad network on the way to the server."""
    with LossyProxy(int(ours.endpoint.rsplit(":", 1)[1])) as proxy:
        yield proxy
