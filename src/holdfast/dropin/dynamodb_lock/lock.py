"""The lock: one conditional write to get it, one to free it.

If the service's replies tell the time, its clock decides about the expiry. We write the latest time
that it can be, plus the ttl, rounded up to a whole second, because the items have always had whole
seconds; we compare with the earliest time that it can be, with its fraction. If the replies do not
tell the time, this machine's clock decides, as in the original.

`owner_id` names a run of the caller's, and two runs may have the same one. So each item of ours has
a nonce as well, by which we recognise our own write when its reply was lost.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from decimal import Decimal
from math import ceil
from typing import Any
from uuid import uuid4

import boto3
from botocore.exceptions import ClientError

from holdfast.core.records import SECOND
from holdfast.dropin.dynamodb_items import NOT_ALLOWED, Answer, Condition, Item, Items
from holdfast.observe.log import printable
from holdfast.stores.dynamodb.errors import code_of

logger = logging.getLogger(__name__.rpartition(".")[0])

NONCE = "holdfast_nonce"


class DynamoDBLock:
    """Locks in a table. A lock has a key and an owner; its owner or its ttl frees it."""

    def __init__(
        self,
        table_name: str,
        ttl_seconds: int = 3600,
        *,
        dynamodb_resource: Any = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        """Without `dynamodb_resource`, one is made as boto3 is configured."""
        if not ttl_seconds > 0:
            raise ValueError(f"ttl_seconds is a number above 0, not {ttl_seconds!r}")
        self.table_name = table_name
        self.ttl_seconds = ttl_seconds
        resource = dynamodb_resource or boto3.resource(
            "dynamodb", region_name=region_name, endpoint_url=endpoint_url
        )
        self._items = Items(resource, table_name)
        self._held: dict[tuple[str, str], int] = {}  # until when, by key and owner
        self._unsure: dict[tuple[str, str], str] = {}  # nonces of writes that may be done

    def acquire(self, lock_key: str, owner_id: str) -> bool:
        """Take the lock. Returns False if it is taken, also by the same owner. Never waits."""
        taken = not self._seen_locked(lock_key, owner_id) and self._take(lock_key, owner_id)
        if taken:
            _log(logging.INFO, "Acquired lock for %s (owner: %s)", lock_key, owner_id)
        else:
            _log(logging.WARNING, "Lock already acquired for %s", lock_key)
        return taken

    def release(self, lock_key: str, owner_id: str) -> bool:
        """Free the lock. Returns False if there is none, or another owner has it."""
        condition = Condition("owner_id = :owner", values={":owner": owner_id})
        answer = self._items.delete({"lock_key": lock_key}, condition)
        held_until = self._held.pop((lock_key, owner_id), 0)
        self._unsure.pop((lock_key, owner_id), None)
        freed = answer.done or self._was_freed(answer, held_until)
        if freed:
            _log(logging.INFO, "Released lock for %s (owner: %s)", lock_key, owner_id)
        else:
            _log(logging.WARNING, "Lock for %s is not held by %s", lock_key, owner_id)
        return freed

    def is_locked(self, lock_key: str) -> bool:
        """Whether somebody holds it now."""
        item = self._items.get({"lock_key": lock_key})
        return item is not None and not self._expired(item)

    def _seen_locked(self, lock_key: str, owner_id: str) -> bool:
        """Read the item if the service's time is not known. Returns True if that shows that the
        lock is taken. A refusal tells the time too, to clients that may not read."""
        if not self._items.clock.unknown:
            return False
        try:
            return self.is_locked(lock_key) and (lock_key, owner_id) not in self._unsure
        except ClientError as error:
            if code_of(error) != NOT_ALLOWED:
                raise
            return False

    def _take(self, lock_key: str, owner_id: str) -> bool:
        key, nonce = {"lock_key": lock_key}, uuid4().hex
        item = self._new_item(owner_id, nonce)
        condition = Condition(
            "attribute_not_exists(lock_key) OR expires_at < :now", values={":now": self._earliest()}
        )
        try:
            answer = self._items.put(key, item, condition)
        except Exception:
            if not self._was_written(lock_key, owner_id, nonce):
                raise
            answer = Answer(True)
        except BaseException:  # interrupted: the caller will not know of it
            with suppress(Exception):
                ours = Condition(f"{NONCE} = :nonce", values={":nonce": nonce})
                self._items.delete(key, ours)
            raise
        found = (answer.item or {}).get(NONCE)
        earlier = self._unsure.pop((lock_key, owner_id), None)
        taken = answer.done or (found is not None and found in (nonce, earlier))
        if taken:
            self._held[lock_key, owner_id] = item["expires_at"]
        return taken

    def _was_written(self, lock_key: str, owner_id: str, nonce: str) -> bool:
        """Whether a write that was not answered was carried out. If nobody answers this question
        either, the next `acquire` of this owner finds out."""
        self._unsure[lock_key, owner_id] = nonce
        try:
            item = self._items.get({"lock_key": lock_key})
        except Exception:
            return False
        return item is not None and item.get(NONCE) == nonce

    def _was_freed(self, answer: Answer, held_until: int) -> bool:
        """Whether an earlier attempt of the same release freed the lock, and only its reply was
        lost. If somebody else has it by now, ours was freed if it had not run out."""
        return answer.doubted and (answer.item is None or self._latest() <= held_until)

    def _new_item(self, owner_id: str, nonce: str) -> Item:
        return {
            "owner_id": owner_id,
            "acquired_at": int(self._earliest()),
            "expires_at": ceil(self._latest() + self.ttl_seconds),
            NONCE: nonce,
        }

    def _expired(self, item: Item) -> bool:
        expires_at = item.get("expires_at")
        return isinstance(expires_at, Decimal) and expires_at < self._earliest()

    def _earliest(self) -> Decimal:
        now = self._items.clock.earliest()
        return Decimal(int(time.time())) if now is None else Decimal(now) / SECOND

    def _latest(self) -> int:
        now = self._items.clock.latest()
        return int(time.time()) if now is None else -(-now // SECOND)


def _log(level: int, text: str, *names: str) -> None:
    logger.log(level, text, *(printable(str(name)) for name in names))
