"""A block of an asyncio task that does not outlive its lease.

As `asyncio.timeout` does with the time, this cancels the task inside the block when the lease is
lost, and at the end of the block tells its own cancellation from one that came from elsewhere: the
task's count of cancellations is then back at what it was when the block began.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.errors import LeaseLost, UsageError

if TYPE_CHECKING:
    from holdfast.api.leases_async import Lease


class CancelWhenLost:
    """Cancels the current task when the lease is lost, until `leave()`. One for each block."""

    def __init__(self, lease: Lease) -> None:
        task = asyncio.current_task()
        if task is None:
            raise UsageError('on_lost="cancel" works inside a task.')
        self._task: asyncio.Task[Any] = task
        self._cancelling_before = task.cancelling()
        self._inside = True
        self._cancelled = False
        lease.on_lost(self._cancel)

    def _cancel(self, lease: Lease) -> None:
        """Cancel the task. Called on the event loop, perhaps after the block has ended."""
        if self._inside:
            self._cancelled = True
            self._task.cancel(f"The lease on {lease.key!r} was lost.")

    def leave(self, exception: BaseException | None) -> bool:
        """End the block. Returns whether `exception` is the cancellation that came from here, and
        nothing else wants the task to end."""
        self._inside = False
        if not self._cancelled:
            return False
        only_ours = self._task.uncancel() <= self._cancelling_before
        return only_ours and isinstance(exception, asyncio.CancelledError)


class Cancellable:
    """Runs a block under a lease: `async with Cancellable(lease):`. A loss raises `LeaseLost`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def __aenter__(self) -> None:
        self._scope = CancelWhenLost(self._lease)

    async def __aexit__(self, kind: object, exception: BaseException | None, tb: object) -> None:
        if self._scope.leave(exception):
            raise_lost(self._lease, exception)


def raise_lost(lease: Lease, cause: BaseException | None) -> None:
    """Raise `LeaseLost` in the place of the cancellation that the loss has caused."""
    try:
        lease.check()
    except LeaseLost as lost:
        raise lost from cause
