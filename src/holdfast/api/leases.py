# Made from leases_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""`Lease` and `Leases`: the calls that reach the store. The rest is in `lease_base`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.api.lease_base import LeaseBase, LeasesBase, graver
from holdfast.api.options import OnLost, Seconds
from holdfast.api.requests import hand_over_ticket
from holdfast.core.events import StoreTrouble
from holdfast.core.handing_over import offer_steps
from holdfast.core.releasing import release_steps
from holdfast.core.renewing import renew_steps
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.observe.log import logger, printable
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.api.client import FaceClient

import threading


class Lease(LeaseBase[threading.Event]):
    """A lock that this process holds. Use it in a `with` block, or call `release()`.

    If the lease is lost while the block runs, the end of the block raises `LeaseLost`; an
    exception of the block itself is never replaced. Renewals run in a thread, also those of an
    asyncio lease, so that a blocked event loop does not lose it; its `lost` event and its
    callbacks come on the loop.
    """

    __slots__ = ()
    _client: FaceClient

    def renew(self) -> None:
        """Renew the lease now. Raises `LeaseLost` if it is gone. The keeper does this by itself."""
        client, leases, hold = self._client, self._client.leases, self._hold
        leases.check_renewable(hold)
        until = client.requests.answers_by()
        try:
            client.driver.run(renew_steps(client.observations, hold, until))
        except LeaseLost as lost:
            leases.keeper.lose(hold, lost.why)
            raise
        leases.renewed(hold)

    def release(self) -> bool:
        """Give the lock back. Returns False if nothing was left to give back. May be repeated.

        Raises if the store does not answer within `request_timeout`. It is tried for a while longer
        in the background, and in the end the ttl frees the lock.
        """
        client, leases, hold = self._client, self._client.leases, self._hold
        attempt = leases.begin_release(hold)
        if attempt is None:
            return False
        member, now = hold.member, clock.monotonic()
        passed_on = False
        try:
            in_line = member is not None and member.cohort is not None
            passed_on = in_line and leases.pass_on(hold, attempt, now)
            if passed_on:
                return True
            until = now + client.driver.request_timeout
            steps = release_steps(client.observations, attempt, now, until)
            freed = client.driver.run(steps)
        except (Unavailable, OutcomeUnknown):
            client.driver.undo_later((attempt,))
            leases.ended(hold, "abandoned")
            raise
        except HoldfastError:
            leases.ended(hold, "abandoned")
            raise
        except BaseException:
            if not leases.is_passed_on(hold):
                leases.ended(hold, "abandoned")
                client.driver.undo((attempt,))
            raise
        finally:
            if member is not None and not passed_on:
                leases.next_turn(hold)
            leases.leave(id(attempt))
        if freed:
            leases.ended(hold, "released")
        else:
            leases.was_gone(hold, attempt.history)
        return freed

    def hand_over(self, *, ttl: Seconds | None = None) -> str:
        """Give the lease up for the party that brings the returned ticket to `take()`.

        The lease ends here whatever happens. The next party gets a new fence. If nobody takes the
        lease within `ttl` (by default the lease's own), the lock is free.
        """
        client, leases, hold = self._client, self._client.leases, self._hold
        leases.check_renewable(hold)
        leases.check_may_end(hold)
        attempt, ticket = hand_over_ticket(hold, ttl, leases.sinks.trace_of(hold.attempt))
        leases.begin_hand_over(hold, attempt)
        try:
            until = client.requests.answers_by()
            client.driver.run(offer_steps(client.observations, attempt, until))
        except BaseException:
            leases.ended(hold, "abandoned")
            client.driver.undo((attempt,))
            raise
        finally:
            leases.next_turn(hold)
            leases.leave(id(attempt))
        leases.handed_over(hold)
        return str(ticket)

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: object
    ) -> None:
        self._leave()
        if exception is None and self._hold.state == "lost":
            self.check()

    def _leave(self) -> None:
        """Release at the end of a block. Trouble of the store is told to the sinks: the work was
        protected to its end, and only the lock stays until its ttl."""
        try:
            self.release()
        except HoldfastError as trouble:
            again = isinstance(trouble, (Unavailable, OutcomeUnknown))
            self._client.leases.sinks.emit(StoreTrouble(self.key, str(trouble), "release", again))

    def _react_to_loss(self, on_lost: OnLost) -> None:
        """Do what the caller of `acquire` wants at a loss."""
        if callable(on_lost):
            self.on_lost(on_lost)

    # --- what it tells ----------------------------------------------------------------------

    def _new_event(self) -> threading.Event:
        return threading.Event()

    def _set_event(self, event: threading.Event) -> None:
        event.set()

    def _call(self, callback: Callable[..., Any]) -> None:
        call = functools.partial(_call_back, callback, self)
        try:
            self._client.leases.callbacks.run(call)
        except RuntimeError:  # no thread can be started; the keeper must go on all the same
            key = printable(self.key)
            logger.exception("A callback of the lease on %s could not be called", key)


def _call_back(callback: Callable[[Lease], Any], lease: Lease) -> None:
    try:
        callback(lease)
    except Exception:
        logger.exception("A callback of the lease on %s failed", printable(lease.key))


class Leases(LeasesBase[Lease]):
    """Several leases that were acquired together: a sequence in the order of the request, and a
    context manager that releases them all. `leases["key"]` works too."""

    def release(self) -> None:
        """Give all locks back."""
        self._each(lambda lease: lease.release())

    def __enter__(self) -> Leases:
        self.check()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._each(lambda lease: lease.__exit__(*exc))

    def _each(self, call: Callable[[Lease], object]) -> None:
        """Call this for every lease, even if one fails or we are interrupted; then raise."""
        trouble: BaseException | None = None
        for lease in reversed(self._leases):
            try:
                call(lease)
            except BaseException as exc:
                trouble = graver(trouble, exc)
        if trouble is not None:
            raise trouble
