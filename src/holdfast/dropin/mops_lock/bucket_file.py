"""A lease as an object in a bucket or container, by the transport of the blob stores."""

from __future__ import annotations

from typing import Any

from holdfast.dropin.mops_lock.lease_file import LEASE_FILE, Found
from holdfast.errors import BadURL
from holdfast.stores.blob import requests
from holdfast.stores.blob.bucket import Bucket
from holdfast.stores.blob.requests import Answer, Calls, Get, Put, Written
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.blob.transport import Transport
from holdfast.stores.registry import ALIASES, BUILT_IN
from holdfast.stores.url import StoreURL


def open_in_bucket(url: StoreURL, lease_dir_uri: str, uri: str) -> BucketLeaseFile:
    """The file in this folder of a bucket; `uri` names it for people."""
    if BUILT_IN.get(ALIASES.get(url.scheme, url.scheme)) != BUILT_IN["s3"]:
        raise BadURL(
            f"Leases of mops cannot be kept at {uri}: use an adls:, az:, s3:, gs: or file: URI."
        )
    store = BlobStore.from_url(url)
    return BucketLeaseFile(store.bucket, lease_dir_uri, uri, compares=store.facts.linearizable)


class BucketLeaseFile:
    """The object `lock.json` in a folder."""

    def __init__(self, bucket: Bucket, lease_dir_uri: str, uri: str, *, compares: bool) -> None:
        self.uri = uri
        self.lease_dir_uri = lease_dir_uri
        self.compares = compares
        self._transport = Transport(bucket)

    def read(self) -> Found | None:
        answer = self._transport.run(_ask(Get(LEASE_FILE)))
        if not isinstance(answer, requests.Found):
            return None
        return Found(answer.body, answer.version)

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        if not self.compares:
            found = self.read()
            if (None if found is None else found.version) != version:
                return None
        answer = self._transport.run(_ask(Put(LEASE_FILE, body, version, anyway=not self.compares)))
        return answer.version if isinstance(answer, Written) else None


def _ask(request: Get | Put) -> Calls[Answer]:
    answer: Answer = yield request
    return answer
