"""Blob stores for the tests, each a place of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.blob_targets import azure_url, s3_url
from tests.engines.azurite import Azurite
from tests.engines.s3 import S3Server
from tests.engines.shared import shared

KINDS = ("file", "az", "s3")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory, a prefix on Azurite, a prefix on the S3 server."""
    return url_of(request.param, tmp_path)


@pytest.fixture(params=KINDS[1:])
def bucket_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, without the directory."""
    return url_of(request.param, tmp_path)


def url_of(kind: str, folder: Path, port: int | None = None) -> str:
    """A place of this kind."""
    if kind == "file":
        return f"file://{folder}/locks"
    if kind == "az":
        return azure_url(shared(Azurite), port)
    return s3_url(shared(S3Server), port)


def port_of(kind: str) -> int:
    """Where the server of this kind listens."""
    return shared(Azurite if kind == "az" else S3Server).port
