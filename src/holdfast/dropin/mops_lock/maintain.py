"""Maintain leases in the background, and join the lease of the process that started this one.

One keeper maintains all leases of a process, each three times within its `expire`. If that fails,
it tries again until the file says that the lease is somebody else's: nobody may have taken it.
Only then the lease is lost: `lease.lost` is set, and an error is logged.

A lease and the callable that releases it can be pickled, as those of mops can. A copy in another
process releases the same lease, and maintains nothing. The keeper of the first process then finds
that the lease was released, and stops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.core.holds import Hold
from holdfast.dropin.mops_lock.errors import CannotMaintainLease, LeaseLostError
from holdfast.dropin.mops_lock.lease import Lease, LeaseAcquired
from holdfast.dropin.mops_lock.lease_file import open_lease_file
from holdfast.dropin.mops_lock.lease_format import Emitter, decode, is_released
from holdfast.dropin.mops_lock.setting import MAINTAIN_LEASES
from holdfast.dropin.renewals import Renewals, renewals
from holdfast.errors import HoldfastError, LeaseLost, Unavailable

__all__ = [
    "MAINTAIN_LEASES",
    "CannotMaintainLease",
    "LeaseLostError",
    "add_lease_to_maintenance_daemon",
    "maintain_to_release",
    "make_remote_lease_writer",
    "no_maintain",
]

logger = logging.getLogger("holdfast")

Release = Callable[[], None]


class Maintenance(Renewals):
    """Maintains the leases of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.releasers: dict[str, _Releaser] = {}
        self.lock = threading.Lock()

    def lost(self, hold: Hold) -> None:
        """Stop if somebody else has the lease, or released it; go on if it only ran out."""
        releaser = self.kept(hold)
        if isinstance(releaser, _Releaser) and releaser.was_released():
            self.end(hold)
            logger.info("The lease at %s was released elsewhere", hold.key)
            return
        if not isinstance(releaser, _Releaser) or releaser.is_over():
            super().lost(hold)
            return
        self.end(hold)
        logger.error(
            "The lease at %s ran out, and others may take it. Still trying to renew it", hold.key
        )
        releaser.begin()


class _Releaser:
    """One lease that is maintained, and the callable that ends that and releases it."""

    def __init__(self, keeper: Maintenance, lease: LeaseAcquired) -> None:
        self._keeper = keeper
        self._lease = lease
        self._lock = threading.Lock()  # what is being maintained is not released meanwhile
        self._ended = False
        self._hold: Hold | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self._lease,)

    def begin(self) -> None:
        """Maintain it from now on."""
        name = str(getattr(self._lease, "uri", self._lease.writer_id))
        ttl_ms = round(self._lease.expire_s * 1000)
        self._hold = self._keeper.keep(self, name, ttl_ms, time.monotonic(), self._maintain)

    def is_over(self) -> bool:
        """Whether there is nothing left to maintain."""
        return self._ended

    def was_released(self) -> bool:
        """Whether another party of this lease, or a copy of it, released it."""
        return isinstance(self._lease, Lease) and self._lease.released_elsewhere

    def _maintain(self) -> bool:
        if not self._lock.acquire(blocking=False):  # do not make other leases wait for this one
            raise Unavailable("an earlier write has not come back yet")
        try:
            if not self._ended:
                self._lease.maintain()
        except LeaseLost:
            self._forget()
            raise
        finally:
            self._lock.release()
        return True

    def __call__(self) -> None:
        """Stop maintaining the lease, and release it."""
        with self._keeper.lock:
            kept = self._keeper.releasers.get(self._lease.writer_id, self)
        for one in {self, kept}:  # a copy releases what another one of this process maintains
            one.stop()
        with self._lock:
            self._lease.release()

    def stop(self) -> None:
        """Stop maintaining the lease."""
        self._forget()
        if self._hold is not None:
            self._keeper.end(self._hold)

    def _forget(self) -> None:
        self._ended = True
        with self._keeper.lock:  # somebody may want to have it maintained anew
            if self._keeper.releasers.get(self._lease.writer_id) is self:
                del self._keeper.releasers[self._lease.writer_id]


def _copied(lease: LeaseAcquired) -> _Releaser:
    """Returns the copy that a pickle is loaded as."""
    return _Releaser(renewals(Maintenance), lease)


def add_lease_to_maintenance_daemon(lease_acq: LeaseAcquired) -> Release:
    """Maintain a lease in the background; the returned callable ends that and releases it.

    A lease that is maintained already is not maintained twice.
    """
    keeper = renewals(Maintenance)
    with keeper.lock:
        releaser = keeper.releasers.get(lease_acq.writer_id)
        if releaser is None:
            releaser = keeper.releasers[lease_acq.writer_id] = _Releaser(keeper, lease_acq)
            releaser.begin()
    return releaser


def make_remote_lease_writer(lease_dir_uri: str, expected_writer_id: str = "") -> Lease:
    """Join the lease in this folder: for a remote that keeps its orchestrator's lease alive.

    It is maintained at once, so that a remote which may go on is safe for all of `expire`.
    It cannot be released. `CannotMaintainLease`: there is no lease, or none that was
    acquired. `LeaseLostError`: it is not that of the expected writer any more, or released.
    """
    file = open_lease_file(lease_dir_uri)
    try:
        found = file.read()
        contents = None if found is None else decode(found.body, file.uri)
    except HoldfastError as trouble:
        raise CannotMaintainLease(f"The lease at {file.uri} cannot be read: {trouble}") from trouble
    if found is None or contents is None:
        raise CannotMaintainLease(f"There is no lease at {file.uri}.")
    expire_s = _expire_s(contents.get("expire_s"))
    if expire_s is None:
        raise CannotMaintainLease(f"The lease at {file.uri} does not say for how long it lasts.")
    if not contents.get("first_acquired_at"):
        raise CannotMaintainLease(f"The lease at {file.uri} was never acquired.")
    writer_id = contents["writer_id"]
    if expected_writer_id and expected_writer_id != writer_id:
        raise _lost(file.uri, f"it is held by another writer, {writer_id}")
    if is_released(contents):
        raise _lost(file.uri, "it was released")
    emitter = Emitter(writer_id, expire_s, "remote")
    emitter.first_acquired_at = contents["first_acquired_at"]
    lease = Lease(file, emitter, found.version, may_release=False)
    lease.maintain()
    return lease


def _expire_s(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and value > 0 else None


def _lost(uri: str, why: str) -> LeaseLostError:
    return LeaseLostError(
        f"The lease at {uri} cannot be joined: {why}. Do not start the work. Start your "
        f"orchestrator again: it will wait for the new owner's result.",
        key=uri,
        why=why,
    )


def no_maintain() -> None:
    """From now on `maintain_to_release` maintains nothing in this process."""
    MAINTAIN_LEASES.set_global(False)


def maintain_to_release(acquired_lease: LeaseAcquired) -> Release:
    """Maintain a lease in the background, unless that was switched off; how to release it."""
    if MAINTAIN_LEASES():
        return add_lease_to_maintenance_daemon(acquired_lease)
    return acquired_lease.release
