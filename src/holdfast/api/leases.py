"""The leases of the blocking face."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from holdfast.api.lease_base import LeaseBase, LeasesBase, graver
from holdfast.api.options import Seconds
from holdfast.core.events import StoreTrouble
from holdfast.core.renewing import renew_steps
from holdfast.core.steps import offer_steps, release_steps
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.observe.log import printable
from holdfast.runtime import clock
from holdfast.runtime.client import PATIENCE, logger


class Lease(LeaseBase[threading.Event]):
    """A lock that is ours for now. Use it in a `with` block, or call `release()`.

    If the block ends well but the lease was lost on the way, `LeaseLost` is raised at its
    end; an exception of the block itself is never replaced.
    """

    __slots__ = ()

    def renew(self) -> None:
        """Renew it now; `LeaseLost` if it is gone. The keeper does this by itself."""
        client, hold = self._client, self._hold
        client.check_usable()
        client.check_held(hold)
        try:
            client.driver.run(renew_steps(client.observations, hold))
        except LeaseLost as lost:
            client.keeper.lose(hold, lost.why)
            raise

    def release(self) -> bool:
        """Give it back. False: there was nothing (left) to give back. May be repeated.

        If the store cannot be reached for a while this raises, and the ttl frees the lock.
        """
        client, hold = self._client, self._hold
        attempt = client.begin_release(hold)
        if attempt is None:
            return False
        now = clock.monotonic()
        try:
            freed = client.driver.run(
                release_steps(client.observations, attempt, now, now + PATIENCE)
            )
        except HoldfastError:
            raise
        except BaseException:
            client.driver.undo((attempt,))
            raise
        client.finish_release(hold, freed)
        return freed

    def hand_over(self, *, ttl: Seconds | None = None) -> str:
        """Give it up for whoever brings the returned ticket to `take()`, with a new fence.

        It is no longer ours from here on, whatever happens. If nobody comes within `ttl`
        (by default the lease's own), the lock is free.
        """
        client, hold = self._client, self._hold
        attempt, ticket = client.begin_hand_over(hold, ttl)
        try:
            client.driver.run(
                offer_steps(client.observations, attempt, clock.monotonic() + PATIENCE)
            )
        except BaseException:
            client.driver.undo((attempt,))
            raise
        client.ended(hold, "Handed over")
        return ticket

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except HoldfastError as trouble:
            # The work was protected to its end; only the lock stays until its ttl.
            self._client.emit(StoreTrouble(self.key, str(trouble), "release", again=False))
        if exc_type is None and self._hold.state == "lost":
            self.check()

    def _new_event(self) -> threading.Event:
        return threading.Event()

    def _set_event(self, event: threading.Event) -> None:
        event.set()

    def _call(self, callback: Callable[..., Any]) -> None:
        try:
            self._client.callbacks.run(functools.partial(_call_back, callback, self))
        except RuntimeError:  # no thread to be had; whoever tells of the lease goes on
            key = printable(self.key)
            logger.exception("A callback of the lease on %s could not be called", key)


def _call_back(callback: Callable[[Lease], Any], lease: Lease) -> None:
    try:
        callback(lease)
    except Exception:
        logger.exception("A callback of the lease on %s failed", printable(lease.key))


class Leases(LeasesBase[Lease]):
    """Several leases, acquired together: a sequence in the order in which they were asked
    for, and a context manager that releases them all. `leases["key"]` works too."""

    def release(self) -> None:
        """Give them all back."""
        self._each(lambda lease: lease.release())

    def __enter__(self) -> Leases:
        self.check()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._each(lambda lease: lease.__exit__(exc_type, None, None))

    def _each(self, call: Callable[[Lease], object]) -> None:
        """For all of them, though one fails or we are interrupted; then say so."""
        trouble: BaseException | None = None
        for lease in reversed(self._leases):
            try:
                call(lease)
            except BaseException as exc:
                trouble = graver(trouble, exc)
        if trouble is not None:
            raise trouble
