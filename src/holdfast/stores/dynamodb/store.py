"""The DynamoDB store: conditional writes on one table, an item per key.

Every write is a PutItem or DeleteItem with a condition on the version, so it may arrive
twice or late and changes nothing then. A version is drawn by its writer: whoever finds his
own in an item knows that his write landed, whatever the reply said.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Conflict, Entry, Facts, Page, Swapped, Version
from holdfast.core.records import SECOND, Record
from holdfast.errors import OutcomeUnknown
from holdfast.stores.base import Outcome
from holdfast.stores.dynamodb.connect import (
    Adopted,
    adopt,
    new_client,
    options_from_url,
)
from holdfast.stores.dynamodb.setup import describe, set_up
from holdfast.stores.dynamodb.table import Failed, Table
from holdfast.stores.dynamodb.versions import lets_in, next_version
from holdfast.stores.waiting.handles import Notify, NotifyingStore, WaitHandle
from holdfast.stores.waiting.poller import Poller, PollIntervals

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

FIRST_NAP_S = 0.1


class DynamoDBStore(NotifyingStore):
    """Locks in one table."""

    facts = Facts(
        name="dynamodb",
        linearizable=True,
        clock="store",
        clock_doubt=SECOND,
        reach="network",
        wakeup="poll",
        durable=True,
        caveats=(
            "A listing reads the whole table, once for every 500 locks that it shows.",
            "A global table is linearizable in one region only: take all locks in the same one.",
        ),
    )

    def __init__(self, adopted: Adopted) -> None:
        self.options = adopted.options
        self.table = Table(adopted)
        self._poller = Poller(
            self.table.entries, lets_in, PollIntervals(FIRST_NAP_S, adopted.options.poll_s)
        )
        self.facts = replace(self.facts, clock_doubt=self.table.clock.doubt)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> DynamoDBStore:
        """`dynamodb://TABLE?region=eu-west-1&endpoint_url=http://localhost:8000`."""
        asked = options_from_url(url, options)
        return cls(Adopted(new_client(None, asked), asked, owned=True))

    @classmethod
    def from_object(cls, found: Any, **options: Any) -> DynamoDBStore:
        """On a boto3 client, resource or table, which stays the application's; or with the
        credentials of a session. `table=` names the table."""
        return cls(adopt(found, options))

    # --- records ----------------------------------------------------------------------------

    def load(self, key: str) -> Entry:
        """One consistent GetItem."""
        return self.table.layout.entry(*self.table.get(key))

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """One PutItem or DeleteItem; and a GetItem if it did not fit and the server does not
        tell what is there."""
        table = self.table
        written = None if record is None else next_version(version, wake)
        if record is None or written is None:
            done = table.delete(key, version)
        else:
            done = table.put(table.layout.item(key, written, record, table.clock.last), version)
        if isinstance(done, Failed):
            return self._not_done(key, done, written)
        self._poller.handles.notify(key, wake)
        return Swapped(written, done)

    def _not_done(self, key: str, failed: Failed, written: Version) -> Outcome:
        if failed.item is not None:
            entry = self.table.layout.entry(failed.item, failed.now)
        elif failed.sent_twice:
            raise OutcomeUnknown(f"{self.table.place}: a write was sent twice.")
        else:
            entry = self.load(key)
        if written is not None and entry.version == written:
            return Swapped(written, entry.now)  # it is ours: it was sent twice below us
        if failed.sent_twice:  # the first one may have been done, and overwritten since
            raise OutcomeUnknown(f"{self.table.place}: a write was sent twice.")
        return Conflict(entry)

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """A Scan of the whole table, which knows no order: the next keys are picked out."""
        layout = self.table.layout
        found = ((layout.key_of(item), item, now) for item, now in self.table.items(prefix, cursor))
        picked = nsmallest(limit, found, key=lambda one: one[0].encode())
        entries = tuple((key, layout.entry(item, now)) for key, item, now in picked)
        return Page(entries, picked[-1][0] if picked and len(picked) == limit else None)

    # --- waiting ----------------------------------------------------------------------------

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Ring when a look finds a change."""
        handle = WaitHandle(key, version, token, notify)
        self._poller.add(handle)
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer ring."""
        self._poller.discard(handle)

    # --- its life ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Create the table unless it is there, wait for it, and switch its TTL on."""
        set_up(self.table, self.options)

    def ddl(self) -> str:
        """The policy, and templates for CloudFormation and Terraform."""
        return describe(self.table, self.options)

    def close(self) -> None:
        """Let go of our own connections; an application's client is left as it is."""
        self._poller.close()
        self.table.close()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self.table.abandon()
