"""`Lease` and `Leases`: the calls that reach the store. The rest is in `lease_base`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast.api.lease_base import LeaseBase, LeasesBase, graver
from holdfast.api.options import OnLost, Seconds
from holdfast.api.requests import hand_over_ticket
from holdfast.core.events import StoreTrouble
from holdfast.core.handing_over import offer_steps
from holdfast.core.holds import Hold
from holdfast.core.releasing import release_steps
from holdfast.core.renewing import renew_steps
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.observe.log import logger, printable
from holdfast.runtime import clock
from holdfast.runtime.flavour import ASYNC

if TYPE_CHECKING:
    from holdfast.api.client_async import FaceClient

if ASYNC:
    import asyncio

    from holdfast.api.cancel_when_lost import CancelWhenLost, raise_lost
else:
    import threading  # noqa: F401


class Lease(LeaseBase[asyncio.Event]):
    """A lock that this process holds. Use it in an `async with` block, or call `release()`.

    If the lease is lost while the block runs, the end of the block raises `LeaseLost`; an
    exception of the block itself is never replaced. Renewals run in a thread, also those of an
    asyncio lease, so that a blocked event loop does not lose it; its `lost` event and its
    callbacks come on the loop.
    """

    __slots__ = ("_cancels", "_loop", "_scope") if ASYNC else ()
    _client: FaceClient

    if ASYNC:

        def __init__(self, client: FaceClient, hold: Hold) -> None:
            super().__init__(client, hold)
            self._loop = asyncio.get_running_loop()
            self._cancels = False  # a loss cancels the task inside the lease's block
            self._scope: CancelWhenLost | None = None

    async def renew(self) -> None:
        """Renew the lease now. Raises `LeaseLost` if it is gone. The keeper does this by itself."""
        client, leases, hold = self._client, self._client.leases, self._hold
        leases.check_renewable(hold)
        until = client.requests.answers_by()
        try:
            await client.driver.run(renew_steps(client.observations, hold, until))
        except LeaseLost as lost:
            leases.keeper.lose(hold, lost.why)
            raise
        leases.renewed(hold)

    async def release(self) -> bool:
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
            freed = await client.driver.run(steps)
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
                await client.driver.undo((attempt,))
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

    async def hand_over(self, *, ttl: Seconds | None = None) -> str:
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
            await client.driver.run(offer_steps(client.observations, attempt, until))
        except BaseException:
            leases.ended(hold, "abandoned")
            await client.driver.undo((attempt,))
            raise
        finally:
            leases.next_turn(hold)
            leases.leave(id(attempt))
        leases.handed_over(hold)
        return str(ticket)

    async def __aenter__(self) -> Lease:
        self.check()
        if ASYNC:
            self._begin_block()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: object
    ) -> None:
        if ASYNC:
            scope, self._scope = self._scope, None
            cancelled_here = scope is not None and scope.leave(exception)
        await self._leave()
        if ASYNC and cancelled_here:
            raise_lost(self, exception)
        if exception is None and self._hold.state == "lost":
            self.check()

    async def _leave(self) -> None:
        """Release at the end of a block. Trouble of the store is told to the sinks: the work was
        protected to its end, and only the lock stays until its ttl."""
        try:
            await self.release()
        except HoldfastError as trouble:
            again = isinstance(trouble, (Unavailable, OutcomeUnknown))
            self._client.leases.sinks.emit(StoreTrouble(self.key, str(trouble), "release", again))

    def _react_to_loss(self, on_lost: OnLost) -> None:
        """Do what the caller of `acquire` wants at a loss."""
        if callable(on_lost):
            self.on_lost(on_lost)
        elif ASYNC and on_lost is not None:
            self._cancels = True

    if ASYNC:

        def _begin_block(self) -> None:
            """From now on a loss cancels the current task, if the caller of `acquire` wants it."""
            if self._cancels:
                self._scope = CancelWhenLost(self)

    # --- what it tells ----------------------------------------------------------------------

    def _new_event(self) -> asyncio.Event:
        return asyncio.Event()

    def _set_event(self, event: asyncio.Event) -> None:
        if ASYNC:
            if asyncio._get_running_loop() is self._home():
                event.set()  # a look at the event right after this shows it
            else:
                self._on_loop(event.set)
        else:
            event.set()

    def _call(self, callback: Callable[..., Any]) -> None:
        call = functools.partial(_call_back, callback, self)
        if ASYNC:
            self._on_loop(functools.partial(_in_task, call))
        else:
            try:
                self._client.leases.callbacks.run(call)
            except RuntimeError:  # no thread can be started; the keeper must go on all the same
                key = printable(self.key)
                logger.exception("A callback of the lease on %s could not be called", key)

    if ASYNC:

        def _home(self) -> asyncio.AbstractEventLoop:
            """The loop on which the lease was acquired; once that is closed, its client's loop."""
            follows = self._client.driver.loop if self._loop.is_closed() else None
            return self._loop if follows is None else follows

        def _on_loop(self, call: Callable[[], Any]) -> None:
            try:
                self._home().call_soon_threadsafe(call)
            except RuntimeError:
                logger.debug("The event loop of the lease on %s is closed", printable(self.key))


async def _call_back(callback: Callable[[Lease], Any], lease: Lease) -> None:
    try:
        outcome = callback(lease)
        if ASYNC and inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("A callback of the lease on %s failed", printable(lease.key))


if ASYNC:
    _callback_tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps them only weakly

    def _in_task(call: Callable[[], Any]) -> None:
        task = asyncio.ensure_future(call())
        _callback_tasks.add(task)
        task.add_done_callback(_callback_tasks.discard)


class Leases(LeasesBase[Lease]):
    """Several leases that were acquired together: a sequence in the order of the request, and a
    context manager that releases them all. `leases["key"]` works too."""

    async def release(self) -> None:
        """Give all locks back."""
        await self._each(lambda lease: lease.release())

    async def __aenter__(self) -> Leases:
        self.check()
        if ASYNC:
            self._begin_block()
        return self

    if ASYNC:

        def _begin_block(self) -> None:
            """As that of a lease, for each of them."""
            for lease in self._leases:
                lease._begin_block()

    async def __aexit__(self, *exc: Any) -> None:
        await self._each(lambda lease: lease.__aexit__(*exc))

    async def _each(self, call: Callable[[Lease], Awaitable[object]]) -> None:
        """Call this for every lease, even if one fails or we are interrupted; then raise."""
        trouble: BaseException | None = None
        for lease in reversed(self._leases):
            try:
                await call(lease)
            except BaseException as exc:
                trouble = graver(trouble, exc)
        if trouble is not None:
            raise trouble
