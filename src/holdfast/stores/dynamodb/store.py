"""The DynamoDB store: conditional writes on one table, an item per key. See `protocol`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Page, Swapped, Version
from holdfast.core.records import NEVER, SECOND, Micros, Record
from holdfast.errors import ClientForked
from holdfast.stores.base import Outcome
from holdfast.stores.dynamodb.codec import ItemCodec
from holdfast.stores.dynamodb.connect import (
    Adopted,
    adopt,
    options_from_url,
    own,
)
from holdfast.stores.dynamodb.protocol import Protocol
from holdfast.stores.dynamodb.setup import describe, set_up
from holdfast.stores.dynamodb.transport import Transport
from holdfast.stores.dynamodb.versions import lets_in
from holdfast.stores.waiting.poller import Poller
from holdfast.stores.waiting.polling_store import POLLED, PollingStore

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL


class DynamoDBStore(PollingStore):
    """Locks in one table."""

    facts = replace(
        POLLED,
        name="dynamodb",
        clock_doubt=SECOND,
        caveats=(
            "A listing reads the whole table, once for every 500 locks that it shows.",
            "A global table is linearizable in one region only: take all locks in the same one.",
        ),
    )

    def __init__(self, adopted: Adopted) -> None:
        self.options = adopted.options
        self._owned, self._session = adopted.owned, adopted.session
        self.transport = transport = Transport(adopted)
        codec = ItemCodec(adopted.options.partition_key, adopted.typed)
        self.protocol = protocol = Protocol(adopted.options.table, codec, transport.where)
        self._poller = Poller(
            lambda keys: transport.run(protocol.entries_calls(keys)),
            lets_in,
            adopted.options.poll_s,
        )
        self.facts = replace(self.facts, clock_doubt=transport.clock.doubt)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> DynamoDBStore:
        """`dynamodb://TABLE?region=eu-west-1&endpoint_url=http://localhost:8000`."""
        asked = options_from_url(url, options)
        return cls(own(None, asked))

    @classmethod
    def from_object(cls, found: Any, **options: Any) -> DynamoDBStore:
        """On a boto3 client, resource or table, which stays the application's; or with the
        credentials of a session. `table=` names the table."""
        return cls(adopt(found, options))

    # --- records ----------------------------------------------------------------------------

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """One consistent GetItem."""
        return self.transport.run(self.protocol.load_calls(key), by)

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """One conditional PutItem or DeleteItem."""
        calls = self.protocol.swap_calls(key, version, record, wake, self.transport.clock.last)
        outcome = self.transport.run(calls, by)
        if isinstance(outcome, Swapped):
            self._poller.handles.notify(key, wake)
        return outcome

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """A Scan of the whole table."""
        return self.transport.run(self.protocol.scan_calls(prefix, cursor, limit), by)

    # --- its life ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Create the table unless it is there, wait for it, and switch its TTL on."""
        set_up(self.transport, self.options)

    def ddl(self) -> str:
        """The policy, and templates for CloudFormation and Terraform."""
        return describe(self.transport, self.options)

    def close(self) -> None:
        """Let go of our own connections; an application's client is left as it is."""
        self._poller.close()
        self.transport.close()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self.transport.abandon()

    def for_child(self) -> DynamoDBStore:
        """Returns a store with a client of its own. Only the application could make another one of
        its clients: boto3 does not tell a client's credentials."""
        if not self._owned:
            raise ClientForked(
                "boto3's clients do not survive a fork: give holdfast.connect() a URL or a "
                "boto3.Session instead of a client, or call it in the child process."
            )
        return type(self)(own(self._session, self.options))
