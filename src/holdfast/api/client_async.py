"""The client of one process, with what a face adds to it: checked arguments and a driver."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.api.leases_async import Lease
from holdfast.api.options import (
    OnLost,
    Seconds,
    check_cap,
    check_on_lost,
    check_request_timeout,
    check_switch,
)
from holdfast.api.requests import Requests
from holdfast.core.acquiring import acquire_steps
from holdfast.core.cohorts import Member, acquire_in_line_steps
from holdfast.core.commands import Free
from holdfast.core.effects import Steps
from holdfast.core.events import Event, How, Waiting
from holdfast.core.holds import NO_BEAT, Attempt, Hold
from holdfast.core.releasing import check_undone
from holdfast.errors import Busy, HoldfastError, Refused
from holdfast.observe.sinks import Sink, Sinks
from holdfast.runtime import clock
from holdfast.runtime.client import Client
from holdfast.runtime.driver_async import Driver
from holdfast.runtime.flavour import ASYNC
from holdfast.stores.base import Store

if ASYNC:
    import asyncio

    CALLER = "task"
    this_caller = asyncio.current_task
else:
    import threading

    CALLER = "thread"
    this_caller = threading.current_thread


class FaceClient(Client):
    """Runs steps for `Locks`, and makes leases of what they get."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None,
        ttl: Seconds,
        request_timeout: Seconds,
        store_patience: Seconds | None,
        long_wait: Seconds | None,
        beats_per_second: float | None,
        pass_on: bool,
        inline: Sequence[Sink],
        sinks: Sequence[Sink],
    ) -> None:
        answer_within = check_request_timeout(request_timeout)
        super().__init__(
            store,
            Sinks(inline, sinks),
            check_cap(beats_per_second),
            answer_within,
            pass_on=check_switch(pass_on, "pass_on"),
        )
        self.requests = Requests(
            store.facts,
            self.check_usable,
            owner=owner,
            ttl=ttl,
            request_timeout=request_timeout,
            store_patience=store_patience,
            long_wait=long_wait,
        )
        if ASYNC:
            served_by = store.to_async()
        else:
            served_by = store
        self.driver = Driver(
            served_by,
            self.observations,
            self._emit,
            self._keep,
            self.check_usable,
            answer_within,
            self.leases.cleaning,
            answered=self.sinks.answered,
            presence=self.sinks.presence,
        )

    async def acquire(
        self, key: str, ttl: Seconds | None, timeout: Seconds | None, mode: str | None,
        limit: int | None, fair: bool | None, owner: str | None, note: dict[str, Any] | None,
        keep: bool, max_hold: Seconds | None, on_lost: OnLost = None,
    ) -> Lease:  # fmt: skip
        """Get a lease, in turn with other callers of this client that want the same."""
        if on_lost is not None:
            check_on_lost(on_lost, "cancel" if ASYNC else None)
        terms = self.requests.terms(timeout, fair, keep, max_hold)
        attempt = self.requests.claim(key, ttl, mode, limit, owner, note, terms)
        now, cohorts = clock.monotonic(), self.cohorts
        member = Member(attempt, terms.care, now)
        self.leases.started(attempt, now)
        try:
            self.leases.enter(id(attempt))
            if cohorts.enter(member, terms, now):
                steps = acquire_steps(self.observations, attempt, terms, now)
            else:
                steps = acquire_in_line_steps(self.observations, cohorts, member, attempt, terms)
            hold = await self.driver.run(steps)
            cohorts.granted(member, hold)
            lease = self._lease_of(hold, on_lost)
            self.leases.adopt(lease, "acquired")
            return lease
        except BaseException as why:
            await self._step_aside(member, attempt, why)
            raise
        finally:
            self.leases.leave(id(attempt))

    async def _step_aside(self, member: Member, attempt: Attempt, why: BaseException) -> None:
        """A caller has failed: free what it has got, and let the next one go on."""
        if self.leases.forked:
            return
        attempts, cohorts = [attempt], self.cohorts
        try:
            hold = cohorts.given(member)
            if hold is not None and self.leases.keeper.end(hold, "released"):
                attempts.append(Attempt(hold.key, Free(hold.token), NO_BEAT, touched=True))
            if isinstance(why, HoldfastError) and not isinstance(why, Refused):
                cohorts.dissolve(member, attempt.trouble_since)
            await self.undo(attempts, why, (attempt,))
        finally:
            cohorts.move_on(member)

    async def enter(self, attempt: Attempt, steps: Steps[Hold], how: How) -> Lease:
        """Run the steps of an attempt. Returns its lease, or undoes what it has left and raises."""
        self.leases.started(attempt, clock.monotonic())
        try:
            self.leases.enter(id(attempt))
            hold = await self.driver.run(steps)
            lease = self._lease_of(hold)
            self.leases.adopt(lease, how)
            return lease
        except BaseException as why:
            await self.undo((attempt,), why, (attempt,))
            raise
        finally:
            self.leases.leave(id(attempt))

    async def undo(
        self, attempts: Sequence[Attempt], why: BaseException, in_vain: Sequence[Attempt]
    ) -> None:
        """Remove what the attempts have left in the store. Tells the sinks of those that have got
        no lease."""
        if self.leases.forked:
            return  # a signal handler forked amid a call: what it has left is the parent's
        self.explain(why)
        try:
            await self.driver.undo(attempts)
        finally:
            self.leases.gave_up(in_vain, why)
        check_undone(attempts, why)

    def _keep(self, hold: Hold) -> None:
        """Look after one lease of an acquire_all that is still going on."""
        self.leases.keep(self._lease_of(hold))

    def _lease_of(self, hold: Hold, on_lost: OnLost = None) -> Lease:
        caller = this_caller()
        hold.caller = None if caller is None else weakref.ref(caller)
        lease = Lease(self, hold)
        if on_lost is not None:
            lease._react_to_loss(on_lost)
        return lease

    # --- waiting for oneself ----------------------------------------------------------------

    def explain(self, why: BaseException) -> None:
        """Have an error say so if the caller itself holds the lock that it did not get."""
        if isinstance(why, Busy) and self._waits_for_itself(why.key, why.holders):
            head = repr(why.key)
            rest = str(why).removeprefix(head)
            why.args = (head + rest.replace("held by ", f"held by this very {CALLER}, ", 1),)

    def _emit(self, event: Event) -> None:
        """Pass an event of the steps on. They do not know in which thread or task they run."""
        if type(event) is Waiting and self._waits_for_itself(event.key, event.holders):
            event = replace(event, own=CALLER)
        self.sinks.emit(event)

    def _waits_for_itself(self, key: str, holders: Sequence[Any]) -> bool:
        fences = {holder.fence for holder in holders}
        return bool(fences) and self.leases.holds_itself(key, fences, this_caller())
