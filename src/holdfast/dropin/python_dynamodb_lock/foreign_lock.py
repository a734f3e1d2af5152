"""Somebody else's lock. Its holder counts as dead in three cases:

 1. By the service's clock, its lease is over. Items of this drop-in say when that is, by the same
    clock, so nobody has to wait or to trust a machine's clock.
 2. By the service's clock, its `expiry_time` was over a whole lease ago, and the table deletes such
    items. A worker with the original wrote that time by its own clock, which is not trusted by
    itself. But from then on the service may delete the item at any moment, so nobody can rely on
    it.
 3. Its version has not changed for its lease, by our clock, counted from after the reply that
    showed it first. That is the original's rule, and the only one if replies do not tell the time.

The lock of a dead holder is replaced only if the item still has the version that we looked at.
"""

from __future__ import annotations

from holdfast.core.records import SECOND, Micros
from holdfast.dropin.dynamodb_items import Item
from holdfast.dropin.python_dynamodb_lock.models import BaseDynamoDBLock
from holdfast.dropin.python_dynamodb_lock.table import LockTable, lease_end
from holdfast.runtime import clock

# DynamoDB does not delete items that expired longer ago. Then somebody's clock was wrong.
LONGEST_EXPIRED: Micros = 5 * 365 * 24 * 3600 * SECOND


class ForeignLock:
    """The lock that we want and somebody else holds, as we saw it last."""

    def __init__(self, table: LockTable) -> None:
        self._table = table
        self._since: Micros = 0
        self.looked = False
        self.lock: BaseDynamoDBLock | None = None

    def see(self, item: Item | None) -> None:
        """Remember what is in the table now."""
        self.looked = True
        seen = None if item is None else self._table.lock_of(item)
        if seen is not None and seen.record_version_number != self._version():
            self._since = clock.monotonic()
        self.lock = seen

    def is_dead(self) -> bool:
        """Whether the holder of the lock that we saw last counts as dead."""
        return self.lock is not None and (
            self._is_over(self.lock) or self._is_expired(self.lock) or self._is_silent(self.lock)
        )

    def _version(self) -> str | None:
        return None if self.lock is None else self.lock.record_version_number

    def _is_over(self, lock: BaseDynamoDBLock) -> bool:
        now, ends_at = self._table.clock.earliest(), lease_end(lock)
        return now is not None and ends_at is not None and now > ends_at

    def _is_expired(self, lock: BaseDynamoDBLock) -> bool:
        now = self._table.clock.earliest()
        if now is None:
            return False
        over_for = now - int((lock.expiry_time + lock.lease_duration) * SECOND)
        return 0 < over_for < LONGEST_EXPIRED and self._table.deletes_expired()

    def _is_silent(self, lock: BaseDynamoDBLock) -> bool:
        return clock.monotonic() - self._since > lock.lease_duration * SECOND
