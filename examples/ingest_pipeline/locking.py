"""What the pipeline needs of a lock, and Holdfast's leases in that shape."""

from __future__ import annotations

from typing import Protocol

import holdfast
from holdfast.fencing import Fence


class LockManager(Protocol):
    """`holdfast.dropin.dynamodb_lock.DynamoDBLock` is one; `LeaseManager` is another."""

    def acquire(self, lock_key: str, owner_id: str) -> bool: ...
    def release(self, lock_key: str, owner_id: str) -> bool: ...


class LeaseManager:
    """Leases: renewed while the pipeline runs, however long, and with a fence."""

    def __init__(self, locks: holdfast.Locks) -> None:
        self._locks = locks
        self._leases: dict[str, holdfast.Lease] = {}

    def acquire(self, lock_key: str, owner_id: str) -> bool:
        """Take it if it is free."""
        lease = self._locks.try_acquire(lock_key, owner=owner_id)
        if lease is not None:
            self._leases[lock_key] = lease
        return lease is not None

    def release(self, lock_key: str, owner_id: str) -> bool:
        """Give it back."""
        lease = self._leases.pop(lock_key, None)
        return lease is not None and lease.release()

    def fence(self, lock_key: str) -> Fence:
        """Its fence, right before something is written; `LeaseLost` if it is too late."""
        lease = self._leases[lock_key]
        lease.check()
        return Fence(lease.key, lease.fence)


def fence_of(manager: LockManager | None, lock_key: str) -> Fence | None:
    """The fence to write with, where there is one."""
    return manager.fence(lock_key) if isinstance(manager, LeaseManager) else None
