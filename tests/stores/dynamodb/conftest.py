"""The servers under test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.dynamodb import CREDENTIALS, DynamoDBLocal, OldDynamoDBLocal
from tests.engines.moto import Moto
from tests.engines.shared import shared
from tests.stores.dynamodb.lab import Lab

KINDS: dict[str, type[DynamoDBLocal] | type[Moto]] = {
    "local": DynamoDBLocal,
    "moto": Moto,
    "old": OldDynamoDBLocal,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials for any server here, and nothing of this machine's own."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    nowhere = {"AWS_CONFIG_FILE": tmp_path / "c", "AWS_SHARED_CREDENTIALS_FILE": tmp_path / "s"}
    for name, path in nowhere.items():
        monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """DynamoDB Local, which other tests use too."""
    yield from _lab(shared(DynamoDBLocal).endpoint)


@pytest.fixture(params=KINDS)
def any_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Every kind of server."""
    yield from _lab(shared(KINDS[request.param]).endpoint)


@pytest.fixture(params=["local", "moto"])
def clocked_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Those that tell the time."""
    yield from _lab(shared(KINDS[request.param]).endpoint)


@pytest.fixture
def old_lab() -> Iterator[Lab]:
    """The one that does not."""
    yield from _lab(shared(OldDynamoDBLocal).endpoint)


class Victim(DynamoDBLocal):
    """A server of these tests' own."""


@pytest.fixture
def victim() -> Victim:
    """A server that the test may kill."""
    engine = shared(Victim)
    if not engine.answers():
        engine.restart()
    return engine


@pytest.fixture
def own_lab(victim: DynamoDBLocal) -> Iterator[Lab]:
    """The same, with stores."""
    yield from _lab(victim.endpoint)


def _lab(endpoint: str) -> Iterator[Lab]:
    lab = Lab(endpoint)
    yield lab
    lab.close()
