"""Blob stores under test: Azurite, an S3 server, what we ask of Google's, and a directory."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import obstore

from holdfast.stores.base import Store
from holdfast.stores.blob.names import name_of
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.registry import open_store
from holdfast.testing.conformance import Target
from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.engines.gcs import BUCKET, FakeGCS
from tests.engines.s3 import S3Server
from tests.engines.shared import shared


def labelled(key: str, text: str) -> bytes:
    """The body of an object with this text as its record."""
    return json.dumps({"key": key, "write": "w", **json.loads(text)}).encode()


class BlobTarget(Target):
    """A prefix of its own in a bucket of a server that all tests share."""

    # On a busy machine a request to one of these takes a while.
    ttl = 2.0

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> Store:
        return open_store(self.url)

    def overwrite(self, key: str, text: str) -> None:
        store = self.open()
        assert isinstance(store, BlobStore)
        bucket = store.bucket
        obstore.put(bucket.store, bucket.path(name_of(key)), labelled(key, text))


class DirectoryTarget(Target):
    """A directory of its own."""

    ttl = 0.8

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks"

    def open(self) -> Store:
        return open_store(f"file://{self._path}")

    def overwrite(self, key: str, text: str) -> None:
        (self._path / name_of(key)).write_bytes(labelled(key, text))


def azure_target(folder: Path) -> BlobTarget:
    """Azurite."""
    return BlobTarget(azure_url(shared(Azurite)))


def s3_target(folder: Path) -> BlobTarget:
    """moto."""
    return BlobTarget(s3_url(shared(S3Server)))


def gcs_target(folder: Path) -> BlobTarget:
    """What we ask of Google's, played by ourselves."""
    return BlobTarget(gcs_url(shared(FakeGCS)))


# One machine with one clock.
ONE_CLOCK = "clock_skew_s=0"


def azure_url(server: Azurite, port: int | None = None, container: str = "locks") -> str:
    """A new prefix of a container; through another port, if a proxy stands in between."""
    server.create_container(container)
    endpoint = server.endpoint.replace(str(server.port), str(port or server.port))
    return (
        f"az://{container}/{uuid4().hex}?account_name={ACCOUNT}&endpoint={quote(endpoint)}"
        f"&account_key={quote(ACCOUNT_KEY, safe='')}&{ONE_CLOCK}"
    )


def s3_url(server: S3Server, port: int | None = None, bucket: str = "locks") -> str:
    """A new prefix of a bucket; through another port, if a proxy stands in between."""
    server.create_bucket(bucket)
    endpoint = server.endpoint.replace(str(server.port), str(port or server.port))
    return (
        f"s3://{bucket}/{uuid4().hex}?endpoint={quote(endpoint)}&region=us-east-1"
        f"&access_key_id=holdfast&secret_access_key=holdfast&{ONE_CLOCK}"
    )


def gcs_url(server: FakeGCS) -> str:
    """A new prefix of its bucket."""
    key = quote(server.service_account_key)
    return f"gs://{BUCKET}/{uuid4().hex}?service_account_key={key}&{ONE_CLOCK}"
