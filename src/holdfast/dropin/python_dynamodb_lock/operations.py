"""The three operations on a lock: take, renew, free. Each expects that replies get lost.

1. Every write has a version of its own. A client that finds a version of its own in the table holds
   the lock, however many replies were lost.
2. A renewal replaces only a version of ours. So a client whose renewal succeeds has held the lock
   all along, also after a time in danger.
3. A lease counts from before the request that was carried out.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from holdfast.dropin.python_dynamodb_lock.foreign_lock import ForeignLock
from holdfast.dropin.python_dynamodb_lock.models import DynamoDBLock, logger
from holdfast.dropin.python_dynamodb_lock.table import LockTable, version_of
from holdfast.observe.log import printable
from holdfast.runtime import clock

# How often a write is tried again because another version of ours is there than we expected.
MOST_TRIES = 3


def take(table: LockTable, lock: DynamoDBLock, foreign: ForeignLock) -> bool:
    """Try once. The first attempt writes without a look, unless the time must be learned first."""
    if foreign.looked or table.clock.unknown:
        foreign.see(table.get(lock.partition_key, lock.sort_key))
        if foreign.lock is None:
            return _write(table, lock, foreign, over=None)
    elif _write(table, lock, foreign, over=None):
        return True
    if foreign.lock is None or not foreign.is_dead():
        return False
    owner = printable(foreign.lock.owner_name)
    logger.warning("The lease of %s on %s is over", owner, lock.unique_identifier)
    return _write(table, lock, foreign, over=foreign.lock.record_version_number)


def renew(table: LockTable, lock: DynamoDBLock) -> bool:
    """Write the next version. Returns False if the lock that is there is not ours."""
    for _ in range(MOST_TRIES):
        sent, new = clock.monotonic(), str(uuid4())
        with lock.thread_lock:
            old = lock.record_version_number
            lock._unconfirmed[new] = sent
        expiry_time = table.expiry_time()
        answer = table.renew(lock, old, new, expiry_time)
        found = new if answer.done else version_of(answer.item)
        with lock.thread_lock:
            if found is None or not lock._wrote(found):
                return False
            # It may be an earlier version, whose reply was lost. Then the lease counts from that.
            lock._confirm(found, expiry_time, lock._unconfirmed.get(found, lock._renewed))
        if found == new:
            break
    return True


def free(table: LockTable, lock: DynamoDBLock) -> bool:
    """Delete the item. Returns False if the lock that is there is not ours. A renewal that is still
    under way may change the version meanwhile."""
    version, doubted = lock.record_version_number, False
    for _ in range(MOST_TRIES):
        answer = table.delete(lock, version)
        if answer.done:
            return True
        doubted = doubted or answer.doubted
        found = version_of(answer.item)
        with lock.thread_lock:
            if found is None or not lock._wrote(found):
                # Nobody takes over a lock during its lease, so an earlier attempt has freed it.
                return doubted and lock._leased()
        version = found
    return False


def _write(table: LockTable, lock: DynamoDBLock, foreign: ForeignLock, over: str | None) -> bool:
    sent = clock.monotonic()
    lock.record_version_number = str(uuid4())
    lock.expiry_time = table.expiry_time()
    try:
        answer = table.insert(lock) if over is None else table.replace(lock, over)
    except Exception:
        if not _was_written(table, lock):
            raise
    else:
        if not answer.done and version_of(answer.item) != lock.record_version_number:
            foreign.see(answer.item)
            return False
    lock._set_renewed(sent)
    return True


def _was_written(table: LockTable, lock: DynamoDBLock) -> bool:
    """Whether a write that was not answered was carried out. If nobody answers this question
    either, the lock is never renewed, and its lease frees it."""
    with suppress(Exception):
        item = table.get(lock.partition_key, lock.sort_key)
        return version_of(item) == lock.record_version_number
    return False
