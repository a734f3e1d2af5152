"""The lock's item: what is asked of DynamoDB, and how a lock is read from an item.

The items are those of the original. If the service tells its time, ours have one more attribute,
`holdfast_lease`: when the lease ends by the service's clock, and for which version that is true.
So a reader need not trust any machine's clock. The original takes it for an attribute of the
application, and replaces it together with the item when it takes the lock over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from holdfast.core.records import SECOND, Micros
from holdfast.dropin.dynamodb_items import Answer, Condition, Item, Items
from holdfast.dropin.python_dynamodb_lock.models import BaseDynamoDBLock, DynamoDBLock

OWNER_NAME = "owner_name"
LEASE_DURATION = "lease_duration"
VERSION = "record_version_number"
LEASE = "holdfast_lease"
LEASE_ENDS_AT = "ends_at"


@dataclass(frozen=True)
class Names:
    """The names of the table's keys and of its TTL attribute."""

    partition_key: str
    sort_key: str
    ttl_attribute: str


class LockTable:
    """The locks on a table."""

    def __init__(self, items: Items, names: Names, expiry_s: float) -> None:
        self._items = items
        self._names = names
        self._expiry_s = expiry_s
        self.clock = items.clock
        self._deletes_expired: bool | None = None

    def get(self, partition_key: str, sort_key: str) -> Item | None:
        """Returns the item of a lock; None if there is none."""
        return self._items.get(self._key(partition_key, sort_key))

    def insert(self, lock: DynamoDBLock) -> Answer:
        """Write a lock, if there is none."""
        free = Condition(
            "attribute_not_exists(#pk) AND attribute_not_exists(#sk)", self._key_names()
        )
        return self._put(lock, free)

    def replace(self, lock: DynamoDBLock, version: str) -> Answer:
        """Write a lock in place of this version."""
        return self._put(lock, self._has(version))

    def renew(self, lock: DynamoDBLock, old: str, new: str, expiry_time: int) -> Answer:
        """Write another version, so that others see that the holder is alive."""
        condition = self._has(old)
        names = {**condition.names, "#et": self._names.ttl_attribute}
        values = {**condition.values, ":new_rvn": new, ":new_et": expiry_time}
        change = "SET #rvn = :new_rvn, #et = :new_et"
        lease = self._lease(lock.lease_duration, new)
        if lease is not None:
            change += ", #lease = :lease"
            names["#lease"], values[":lease"] = LEASE, lease
        renewed = Condition(condition.expression, names, values)
        return self._items.update(self._key_of(lock), change, renewed)

    def delete(self, lock: DynamoDBLock, version: str) -> Answer:
        """Remove a lock if it has this version."""
        return self._items.delete(self._key_of(lock), self._has(version))

    def expiry_time(self) -> int:
        """When DynamoDB may delete what is written now."""
        now = self.clock.latest()
        seconds = time.time() if now is None else now / SECOND
        return int(seconds + self._expiry_s)

    def deletes_expired(self) -> bool:
        """Whether DynamoDB deletes locks by their expiry_time. Asked once."""
        if self._deletes_expired is None:
            try:
                self._deletes_expired = self._items.deletes_expired(self._names.ttl_attribute)
            except Exception:  # we may not be allowed to ask
                self._deletes_expired = False
        return self._deletes_expired

    def lock_of(self, item: Item) -> BaseDynamoDBLock:
        """The lock that an item shows. `KeyError`: it is no lock."""
        rest = dict(item)
        return BaseDynamoDBLock(
            partition_key=rest.pop(self._names.partition_key),
            sort_key=rest.pop(self._names.sort_key),
            owner_name=rest.pop(OWNER_NAME),
            lease_duration=float(rest.pop(LEASE_DURATION)),
            record_version_number=rest.pop(VERSION),
            expiry_time=int(rest.pop(self._names.ttl_attribute)),
            additional_attributes=rest,
        )

    # --- how it is done ---------------------------------------------------------------------

    def _put(self, lock: DynamoDBLock, condition: Condition) -> Answer:
        item = {
            **lock.additional_attributes,
            OWNER_NAME: lock.owner_name,
            LEASE_DURATION: Decimal(str(lock.lease_duration)),
            VERSION: lock.record_version_number,
            self._names.ttl_attribute: lock.expiry_time,
        }
        item.pop(LEASE, None)
        lease = self._lease(lock.lease_duration, lock.record_version_number)
        if lease is not None:
            item[LEASE] = lease
        return self._items.put(self._key_of(lock), item, condition)

    def _lease(self, lease_duration: float, version: str) -> dict[str, Any] | None:
        now = self.clock.latest()
        if now is None:
            return None
        return {
            LEASE_ENDS_AT: Decimal(now) / SECOND + Decimal(str(lease_duration)),
            VERSION: version,
        }

    def _has(self, version: str) -> Condition:
        names = {**self._key_names(), "#rvn": VERSION}
        expression = "attribute_exists(#pk) AND attribute_exists(#sk) AND #rvn = :old_rvn"
        return Condition(expression, names, {":old_rvn": version})

    def _key_names(self) -> dict[str, str]:
        return {"#pk": self._names.partition_key, "#sk": self._names.sort_key}

    def _key_of(self, lock: BaseDynamoDBLock) -> dict[str, str]:
        return self._key(lock.partition_key, lock.sort_key)

    def _key(self, partition_key: str, sort_key: str) -> dict[str, str]:
        return {self._names.partition_key: partition_key, self._names.sort_key: sort_key}


def version_of(item: Item | None) -> str | None:
    """The version of the lock that is there."""
    return None if item is None else item.get(VERSION)


def lease_end(lock: BaseDynamoDBLock) -> Micros | None:
    """When the lease ends by the service's clock, if the item says so for this very version."""
    lease = lock.additional_attributes.get(LEASE)
    if not isinstance(lease, dict) or lease.get(VERSION) != lock.record_version_number:
        return None
    ends_at = lease.get(LEASE_ENDS_AT)
    return int(ends_at * SECOND) if isinstance(ends_at, Decimal) else None
