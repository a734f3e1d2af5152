"""One way to call two packages: python-dynamodb-lock and ours."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any, Literal

from python_dynamodb_lock import python_dynamodb_lock as theirs

from holdfast.dropin import python_dynamodb_lock as ours
from tests.dropin.dynamodb import resource
from tests.helpers import unique

Whose = Literal["theirs", "ours"]
PACKAGES: dict[str, ModuleType] = {"theirs": theirs, "ours": ours}

# Beats come soon and a lease lasts: the machine may be busy.
QUICK = {
    "heartbeat_period": timedelta(seconds=0.25),
    "safe_period": timedelta(seconds=30),
    "lease_duration": timedelta(seconds=60),
}
# An acquire that looks a few times and gives up.
BRIEF = {"retry_period": timedelta(seconds=0.1), "retry_timeout": timedelta(seconds=0.25)}
# One that looks until it gets it.
PATIENT = {"retry_period": timedelta(seconds=0.1), "retry_timeout": timedelta(seconds=60)}


def seconds(number: float) -> timedelta:
    """A span of time."""
    return timedelta(seconds=number)


class Lab:
    """A table of its own, and the clients of one of the packages."""

    def __init__(self, endpoint: str, whose: Whose = "ours", table: str | None = None) -> None:
        self.endpoint = endpoint
        self.package: Any = PACKAGES[whose]
        self.Error = self.package.DynamoDBLockError
        self.resource = resource(endpoint)
        self.table = table or f"locks-{unique()}"
        self._clients: list[Any] = []
        if table is None:
            create = self.package.DynamoDBLockClient.create_dynamodb_table
            create(self.resource.meta.client, self.table)

    def client(self, through: str | None = None, **options: Any) -> Any:
        """A client, perhaps through another endpoint; closed at the end."""
        whence = self.resource if through is None else resource(through, timeout_s=1.0)
        made = self.package.DynamoDBLockClient(whence, self.table, **{**QUICK, **options})
        self._clients.append(made)
        return made

    def still_client(self, **options: Any) -> Any:
        """A client whose first beat is far away. The original would take as long to close."""
        options = {**QUICK, "heartbeat_period": seconds(30), **options}
        return self.package.DynamoDBLockClient(self.resource, self.table, **options)

    def item(self, key: str = "k", sort_key: str = "-") -> dict[str, Any] | None:
        """What is on the table."""
        found = self.resource.Table(self.table).get_item(
            Key={"lock_key": key, "sort_key": sort_key}, ConsistentRead=True
        )
        item: dict[str, Any] | None = found.get("Item")
        return item

    def version(self, key: str = "k") -> str | None:
        """The version of a lock."""
        item = self.item(key)
        return None if item is None else item["record_version_number"]

    def put(self, **attributes: Any) -> None:
        """Write an item without asking anybody."""
        item = {
            "lock_key": "k", "sort_key": "-", "owner_name": "somebody", "lease_duration": 60,
            "record_version_number": unique(), "expiry_time": 1 << 32, **attributes,
        }  # fmt: skip
        self.resource.Table(self.table).put_item(Item=item)

    def delete(self, key: str = "k") -> None:
        """Remove an item without asking anybody."""
        self.resource.Table(self.table).delete_item(Key={"lock_key": key, "sort_key": "-"})

    def close(self) -> None:
        """Let go of everything."""
        for client in self._clients:
            with suppress(Exception):
                client.close()
        self.resource.meta.client.close()


class LastHeard:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.locks: list[Any] = []

    def __call__(self, code: str, lock: Any) -> None:
        self.codes.append(code)
        self.locks.append(lock)


def tried_once(lab: Lab) -> Any:
    """What a new client gets in a single try; None if that is nothing."""
    client = lab.client(lease_duration=seconds(3600))
    try:
        return client.acquire_lock("k", retry_period=seconds(10), retry_timeout=seconds(1))
    except lab.Error as error:
        if error.code != lab.Error.ACQUIRE_TIMEOUT:
            raise
        return None
