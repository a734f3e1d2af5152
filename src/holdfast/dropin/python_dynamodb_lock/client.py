"""The client: acquires, keeps alive and releases.

What is written to the table, and why, is in `operations`.
"""

from __future__ import annotations

import datetime
import itertools
import socket
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

from holdfast.core.records import SECOND
from holdfast.dropin.dynamodb_items import Items
from holdfast.dropin.python_dynamodb_lock.defaults import Defaults
from holdfast.dropin.python_dynamodb_lock.foreign_lock import ForeignLock
from holdfast.dropin.python_dynamodb_lock.heartbeat import ADAPTIVE, GRACE_S, Heartbeat
from holdfast.dropin.python_dynamodb_lock.models import (
    AppCallback,
    DynamoDBLock,
    DynamoDBLockError,
    logger,
)
from holdfast.dropin.python_dynamodb_lock.operations import free, renew, take
from holdfast.dropin.python_dynamodb_lock.table import LockTable, Names
from holdfast.observe.log import printable
from holdfast.runtime import clock, fork_hooks

TABLE_DELAY_S, TABLE_TRIES = 2, 150
SHORTEST_CHECK_S = 0.01


class DynamoDBLockClient(Defaults):
    """Locks on a DynamoDB table, kept alive while they are held. Safe for many threads."""

    def __init__(
        self,
        dynamodb_resource: Any,
        table_name: str = Defaults._DEFAULT_TABLE_NAME,
        partition_key_name: str = Defaults._DEFAULT_PARTITION_KEY_NAME,
        sort_key_name: str = Defaults._DEFAULT_SORT_KEY_NAME,
        ttl_attribute_name: str = Defaults._DEFAULT_TTL_ATTRIBUTE_NAME,
        owner_name: str | None = None,
        heartbeat_period: datetime.timedelta = Defaults._DEFAULT_HEARTBEAT_PERIOD,
        safe_period: datetime.timedelta = Defaults._DEFAULT_SAFE_PERIOD,
        lease_duration: datetime.timedelta = Defaults._DEFAULT_LEASE_DURATION,
        expiry_period: datetime.timedelta = Defaults._DEFAULT_EXPIRY_PERIOD,
        heartbeat_tps: float = Defaults._DEFAULT_HEARTBEAT_TPS,
        app_callback_executor: Executor | None = None,
    ) -> None:
        """
        dynamodb_resource      boto3.resource("dynamodb")
        ttl_attribute_name     where DynamoDB finds out when it may delete an abandoned lock
        owner_name             by default the host's name and a random part
        heartbeat_period       how often each lock beats; at most a quarter of the lease
        safe_period            after so long without a beat, a lock is in danger
        lease_duration         after so long without a beat, others take the lock over
        expiry_period          after so long without a beat, DynamoDB may delete the lock
        heartbeat_tps          how many beats per second; -1 spreads them over the period
        app_callback_executor  what runs the callbacks; by default up to five threads
        """
        if heartbeat_tps != ADAPTIVE and not heartbeat_tps > 0:
            raise ValueError(f"heartbeat_tps is -1 or a number above 0, not {heartbeat_tps!r}")
        self._uuid = uuid4().hex
        self._name = f"DynamoDBLockClient-{self._uuid}"
        self._owner_name = owner_name or socket.getfqdn() + self._uuid
        self._heartbeat_period = heartbeat_period
        self._safe_period = safe_period
        self._lease_duration = lease_duration
        self._heartbeat_tps = heartbeat_tps
        self._own_executor = app_callback_executor is None
        self._app_callback_executor = app_callback_executor or self._new_executor()
        names = Names(partition_key_name, sort_key_name, ttl_attribute_name)
        items = Items(dynamodb_resource, table_name)
        self._table = LockTable(items, names, expiry_period.total_seconds())
        self._table_name = table_name
        self._closing = threading.Event()
        self._hold_nothing()
        fork_hooks.register(self)

    def __str__(self) -> str:
        return f"{type(self).__name__}::{self._table_name} as {self._owner_name}"

    # --- acquire ----------------------------------------------------------------------------

    def acquire_lock(
        self,
        partition_key: str,
        sort_key: str = Defaults._DEFAULT_SORT_KEY_VALUE,
        retry_period: datetime.timedelta | None = None,
        retry_timeout: datetime.timedelta | None = None,
        additional_attributes: dict[str, Any] | None = None,
        app_callback: AppCallback | None = None,
    ) -> DynamoDBLock:
        """Get a lock, and wait for it if need be; `DynamoDBLockError` if that takes too long.

        retry_period           how often to look; by default every heartbeat_period
        retry_timeout          for how long; by default a lease_duration and a heartbeat_period
        additional_attributes  of the application, stored with the lock
        app_callback           is called with a code and the lock: LOCK_IN_DANGER when there was
                               no beat for the safe_period, LOCK_STOLEN when the lock is gone
        """
        lock = DynamoDBLock(
            partition_key, sort_key, self._owner_name, self._lease_duration.total_seconds(),
            "", 0, additional_attributes, app_callback, self,
        )  # fmt: skip
        period_s = (retry_period or self._heartbeat_period).total_seconds()
        timeout = retry_timeout or self._lease_duration + self._heartbeat_period
        try:
            self._wait_for(lock, period_s, timeout.total_seconds())
            self._enter(lock)
        except Exception:
            raise
        except BaseException:  # interrupted: nobody would release it
            self._take_back(lock)
            raise
        owner = printable(lock.owner_name)
        logger.info("Acquired lock %s (owner: %s)", lock.unique_identifier, owner)
        return lock

    def _wait_for(self, lock: DynamoDBLock, period_s: float, timeout_s: float) -> None:
        started = time.monotonic()
        foreign = ForeignLock(self._table)
        for tries in itertools.count(1):
            self._check_open()
            try:
                if take(self._table, lock, foreign):
                    return
            except Exception as exc:
                raise DynamoDBLockError(DynamoDBLockError.UNKNOWN, _told(exc)) from exc
            next_at = started + tries * period_s
            if next_at > started + timeout_s:
                raise DynamoDBLockError(
                    DynamoDBLockError.ACQUIRE_TIMEOUT,
                    f"acquire_lock() timed out: {lock.unique_identifier}",
                )
            self._closing.wait(max(0.0, next_at - time.monotonic()))

    def _enter(self, lock: DynamoDBLock) -> None:
        with self._mutex:
            open_ = not self._closing.is_set()
            if open_:
                lock.status = DynamoDBLock.LOCKED
                before = self._locks.get(lock.unique_identifier)
                self._locks[lock.unique_identifier] = lock
                self._start_heartbeat()
        if not open_:
            self._take_back(lock)
            self._check_open()
        if before is not None:  # another thread of ours let it run out
            self._was_stolen(before)

    def _take_back(self, lock: DynamoDBLock) -> None:
        with self._mutex:
            self._drop(lock)
            lock.status = DynamoDBLock.INVALID

        def clean() -> None:
            with suppress(Exception):
                free(self._table, lock)

        if lock.record_version_number:
            cleaner = threading.Thread(target=clean, name=f"{self._name}-clean", daemon=True)
            cleaner.start()
            cleaner.join(GRACE_S)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise DynamoDBLockError(DynamoDBLockError.CLIENT_SHUTDOWN, "Client already shut down")

    # --- keep -------------------------------------------------------------------------------

    def _beat(self, lock: DynamoDBLock) -> None:
        try:
            if not self._is_held(lock):
                return
            if renew(self._table, lock):
                self._leave_danger(lock)
            else:
                self._was_stolen(lock)
        except Exception as exc:
            logger.warning("No heartbeat for %s: %s", lock.unique_identifier, _told(exc))

    def _leave_danger(self, lock: DynamoDBLock) -> None:
        if self._safe_for(lock) > 0 and self._change(
            lock, DynamoDBLock.IN_DANGER, DynamoDBLock.LOCKED
        ):
            logger.info("Lock %s is out of danger", lock.unique_identifier)

    def _check(self) -> float:
        """Report locks in danger. Returns after how many seconds the next one may be."""
        rest = min(self._heartbeat_period, self._safe_period).total_seconds()
        for lock in self._held():
            safe_for = self._safe_for(lock)
            if safe_for > 0:
                rest = min(rest, safe_for)
            elif self._change(lock, DynamoDBLock.LOCKED, DynamoDBLock.IN_DANGER):
                logger.warning("Lock %s is in danger", lock.unique_identifier)
                self._tell(lock, DynamoDBLockError.LOCK_IN_DANGER)
        return max(rest, SHORTEST_CHECK_S)

    def _safe_for(self, lock: DynamoDBLock) -> float:
        return self._safe_period.total_seconds() - (clock.monotonic() - lock._renewed) / SECOND

    def _was_stolen(self, lock: DynamoDBLock) -> None:
        with self._mutex:
            self._drop(lock)
        if self._change(lock, DynamoDBLock.LOCKED, DynamoDBLock.INVALID) or self._change(
            lock, DynamoDBLock.IN_DANGER, DynamoDBLock.INVALID
        ):
            logger.warning("Lock %s was stolen", lock.unique_identifier)
            self._tell(lock, DynamoDBLockError.LOCK_STOLEN)

    def _change(self, lock: DynamoDBLock, before: str, after: str) -> bool:
        with lock.thread_lock:
            if lock.status != before:
                return False
            lock.status = after
            return True

    def _tell(self, lock: DynamoDBLock, code: str) -> None:
        if lock.app_callback is not None:
            try:
                self._app_callback_executor.submit(_call_back, lock.app_callback, code, lock)
            except RuntimeError:  # it was shut down
                logger.exception(
                    "The callback of %s could not be called: %s", lock.unique_identifier, code
                )

    # --- release ----------------------------------------------------------------------------

    def release_lock(self, lock: DynamoDBLock, best_effort: bool = True) -> None:
        """Give a lock back. In best effort an error is logged, and the lease frees the lock."""
        try:
            if not self._give_up(lock):
                return
            if not free(self._table, lock):
                raise DynamoDBLockError(
                    DynamoDBLockError.LOCK_STOLEN, "Lock was stolen by someone else"
                )
            logger.info("Released lock %s", lock.unique_identifier)
        except Exception as exc:
            if best_effort:
                logger.warning("Lock %s was not released: %s", lock.unique_identifier, _told(exc))
            elif isinstance(exc, DynamoDBLockError):
                raise
            else:
                raise DynamoDBLockError(DynamoDBLockError.UNKNOWN, _told(exc)) from exc

    def _give_up(self, lock: DynamoDBLock) -> bool:
        """Stop renewing a lock. Returns False if it was not held any more."""
        with lock.thread_lock:
            if lock.status not in (DynamoDBLock.LOCKED, DynamoDBLock.IN_DANGER):
                return False
            with self._mutex:
                if not self._drop(lock):
                    raise DynamoDBLockError(
                        DynamoDBLockError.LOCK_NOT_OWNED, "Lock is not owned by this client"
                    )
            lock.status = DynamoDBLock.RELEASED
            return True

    # --- life -------------------------------------------------------------------------------

    def close(self, release_locks: bool = False) -> None:
        """Stop the heartbeats. Locks that are held stay until their lease is over, because
        what they protect may still be under way; or are released, if so asked."""
        with self._mutex:
            if self._closing.is_set():
                return
            self._closing.set()
            heartbeat = self._heartbeat
        if heartbeat is not None:
            heartbeat.stop()
        if release_locks:
            for lock in self._held():
                self.release_lock(lock, best_effort=True)
        if self._own_executor:
            self._app_callback_executor.shutdown(wait=False)

    def abandon(self) -> None:
        """In a forked child: the locks are the parent's, which goes on renewing them."""
        for lock in self._locks.values():
            lock.status = DynamoDBLock.INVALID
            lock.thread_lock = threading.RLock()
        if self._own_executor:
            self._app_callback_executor = self._new_executor()
        closed = self._closing.is_set()
        self._closing = threading.Event()
        if closed:
            self._closing.set()
        self._hold_nothing()

    @classmethod
    def create_dynamodb_table(
        cls, dynamodb_client: Any, table_name: str = Defaults._DEFAULT_TABLE_NAME,
        partition_key_name: str = Defaults._DEFAULT_PARTITION_KEY_NAME,
        sort_key_name: str = Defaults._DEFAULT_SORT_KEY_NAME,
        ttl_attribute_name: str = Defaults._DEFAULT_TTL_ATTRIBUTE_NAME,
        read_capacity: int = Defaults._DEFAULT_READ_CAPACITY,
        write_capacity: int = Defaults._DEFAULT_WRITE_CAPACITY,
    ) -> None:  # fmt: skip
        """Create the table, wait until it is active, and switch its time to live on."""
        keys = ((partition_key_name, "HASH"), (sort_key_name, "RANGE"))
        dynamodb_client.create_table(
            TableName=table_name,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name, _ in keys
            ],
            ProvisionedThroughput={
                "ReadCapacityUnits": read_capacity,
                "WriteCapacityUnits": write_capacity,
            },
        )
        dynamodb_client.get_waiter("table_exists").wait(
            TableName=table_name,
            WaiterConfig={"Delay": TABLE_DELAY_S, "MaxAttempts": TABLE_TRIES},
        )
        dynamodb_client.update_time_to_live(
            TableName=table_name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": ttl_attribute_name},
        )

    def _hold_nothing(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, DynamoDBLock] = {}
        self._heartbeat: Heartbeat | None = None

    def _start_heartbeat(self) -> None:
        if self._heartbeat is None:
            self._heartbeat = Heartbeat(
                self._held, self._beat, self._check,
                self._heartbeat_period.total_seconds(), self._heartbeat_tps, self._name,
            )  # fmt: skip
            self._heartbeat.start()

    def _held(self) -> list[DynamoDBLock]:
        with self._mutex:
            return list(self._locks.values())

    def _is_held(self, lock: DynamoDBLock) -> bool:
        with self._mutex:
            return self._locks.get(lock.unique_identifier) is lock

    def _drop(self, lock: DynamoDBLock) -> bool:
        """Under the mutex. The same key may be held anew."""
        if self._locks.get(lock.unique_identifier) is not lock:
            return False
        del self._locks[lock.unique_identifier]
        return True

    def _new_executor(self) -> Executor:
        return ThreadPoolExecutor(
            self._DEFAULT_APP_CALLBACK_THREADPOOL_SIZE, thread_name_prefix=f"{self._name}-callback"
        )


def _call_back(app_callback: AppCallback, code: str, lock: DynamoDBLock) -> None:
    try:
        app_callback(code, lock)
    except Exception:
        logger.exception("The callback of %s failed", lock.unique_identifier)


def _told(exc: Exception) -> str:
    """An error's first line: boto3 may go on with a signed request, session token and all."""
    lines = str(exc).splitlines()
    return lines[0] if lines else repr(exc)
