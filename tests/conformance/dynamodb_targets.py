"""DynamoDB as a store under test: AWS's own local one, an old one of it, and moto."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from holdfast.stores.base import Store
from holdfast.stores.dynamodb import DynamoDBStore
from holdfast.stores.dynamodb.codec import RECORD
from holdfast.stores.registry import open_store
from holdfast.testing.conformance import Target
from tests.engines.dynamodb import DynamoDBLocal, OldDynamoDBLocal, session
from tests.engines.moto import Moto
from tests.engines.shared import shared

TABLE = "Conformance"


class DynamoDBTarget(Target):
    """A table of a server that all tests share; each test has keys of its own."""

    # A request takes longer here than elsewhere, and more so at a load of 10.
    ttl = 2.0
    kind: ClassVar[type[DynamoDBLocal] | type[Moto]] = DynamoDBLocal
    _ready: ClassVar[set[str]] = set()

    def __init__(self, folder: Path) -> None:
        self.endpoint = shared(self.kind).endpoint
        if self.endpoint not in self._ready:
            store = self.open()
            store.setup()
            store.close()
            self._ready.add(self.endpoint)

    def open(self) -> Store:
        return open_store(
            session(), table=TABLE, endpoint_url=self.endpoint, clock_margin_s=0, poll_s=0.2
        )

    def overwrite(self, key: str, text: str) -> None:
        store = self.open()
        assert isinstance(store, DynamoDBStore)
        store.transport.call(
            "update_item",
            "writing",
            Key=store.protocol.codec.key(key),
            UpdateExpression="SET #r = :text",
            ExpressionAttributeNames={"#r": RECORD},
            ExpressionAttributeValues={":text": {"S": text}},
        )
        store.close()


class MotoTarget(DynamoDBTarget):
    """moto's server."""

    kind = Moto


class OldDynamoDBTarget(DynamoDBTarget):
    """It tells neither the time nor the item that was in the way."""

    kind = OldDynamoDBLocal

    def open(self) -> Store:
        store = super().open()
        store.facts = replace(store.facts, clock="observed", clock_doubt=0)
        return store
