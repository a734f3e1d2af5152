"""The locks and the error, with the attributes that callers of the original know."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

from holdfast.core.records import SECOND, Micros
from holdfast.runtime import clock

logger = logging.getLogger(__name__.rpartition(".")[0])

AppCallback = Callable[[str, Any], Any]


class Releaser(Protocol):
    """A client that can release a lock."""

    def release_lock(self, lock: Any, best_effort: bool = True) -> None: ...


class DynamoDBLockError(Exception):
    """Whatever can go wrong when a lock is acquired or released; `code` says what."""

    CLIENT_SHUTDOWN = "CLIENT_SHUTDOWN"
    ACQUIRE_TIMEOUT = "ACQUIRE_TIMEOUT"
    LOCK_NOT_OWNED = "LOCK_NOT_OWNED"
    LOCK_STOLEN = "LOCK_STOLEN"
    LOCK_IN_DANGER = "LOCK_IN_DANGER"
    UNKNOWN = "UNKNOWN"
    UNKNOWN_ERROR = UNKNOWN  # as the original's documentation calls it

    def __init__(self, code: str = "UNKNOWN", message: str = "Unknown error") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.code} - {self.message}"


class BaseDynamoDBLock:
    """A lock as its item shows it: somebody's, or our own."""

    def __init__(
        self, partition_key: str, sort_key: str, owner_name: str, lease_duration: float,
        record_version_number: str, expiry_time: int, additional_attributes: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        self.partition_key = partition_key
        self.sort_key = sort_key
        self.owner_name = owner_name
        self.lease_duration = lease_duration  # seconds
        self.record_version_number = record_version_number  # another one with every beat
        self.expiry_time = expiry_time  # epoch seconds, when DynamoDB may delete the item
        self.additional_attributes = additional_attributes or {}
        self.unique_identifier = quote(partition_key) + "|" + quote(sort_key)

    def __str__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return f"{type(self).__name__}::{shown}"


class DynamoDBLock(BaseDynamoDBLock):
    """A lock that a client of ours holds, held or wants. In a `with` block it is released at
    the end, and what the block raises is raised."""

    PENDING = "PENDING"
    LOCKED = "LOCKED"
    RELEASED = "RELEASED"
    IN_DANGER = "IN_DANGER"
    INVALID = "INVALID"

    def __init__(
        self, partition_key: str, sort_key: str, owner_name: str, lease_duration: float,
        record_version_number: str, expiry_time: int, additional_attributes: dict[str, Any] | None,
        app_callback: AppCallback | None, lock_client: Releaser,
    ) -> None:  # fmt: skip
        super().__init__(
            partition_key, sort_key, owner_name, lease_duration,
            record_version_number, expiry_time, additional_attributes,
        )  # fmt: skip
        self.app_callback = app_callback
        self.lock_client = lock_client
        self.thread_lock = threading.RLock()  # never held while DynamoDB is asked
        self.status = self.PENDING
        # Versions that were written and not confirmed, and when they were sent.
        self._unconfirmed: dict[str, Micros] = {}
        self._set_renewed(clock.monotonic())

    def __enter__(self) -> DynamoDBLock:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.release(best_effort=True)

    def release(self, best_effort: bool = True) -> None:
        """Give it back. In best effort an error is logged, and the lease frees the lock."""
        self.lock_client.release_lock(self, best_effort)

    # --- for the client, which holds `thread_lock` ------------------------------------------

    def _set_renewed(self, sent: Micros) -> None:
        self._renewed = sent
        self.last_updated_time = time.monotonic() - (clock.monotonic() - sent) / SECOND

    def _confirm(self, version: str, expiry_time: int, sent: Micros) -> None:
        """This version is on the table. What was sent before can no longer land: each write
        names the version that it replaces, and no version comes twice."""
        self.record_version_number = version
        self.expiry_time = expiry_time
        self._unconfirmed.clear()
        self._set_renewed(sent)

    def _wrote(self, version: str | None) -> bool:
        """Whether a version on the table is one of ours."""
        return version == self.record_version_number or version in self._unconfirmed

    def _leased(self) -> bool:
        """Whether nobody can have taken it over yet."""
        return clock.monotonic() < self._renewed + int(self.lease_duration * SECOND)
