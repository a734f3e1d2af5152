"""`connect()` and `Locks`: the entry points for callers, written once for both faces."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.api.guard import Guarded, OnBusy, OrElse, Within, options_for
from holdfast.api.info import HolderInfo, LockInfo, holder_info, lock_info
from holdfast.api.leases_async import RETRY_FOR, Lease, Leases
from holdfast.api.options import (
    Seconds,
    check_callback,
    check_cap,
    check_fence,
    check_prefix,
    check_retention,
)
from holdfast.api.requests import Requests
from holdfast.api.store_source import DEFAULT, StoreSource, connect_to
from holdfast.api.wants import Want, check_wants
from holdfast.core.acquiring import acquire_all_steps, acquire_steps
from holdfast.core.contract import Facts
from holdfast.core.discreet import hidden
from holdfast.core.effects import Steps
from holdfast.core.events import Event
from holdfast.core.evicting import evict_steps
from holdfast.core.handing_over import enter_steps
from holdfast.core.holds import Attempt, Hold
from holdfast.core.listing import Purged, list_steps, purge_steps, show_steps
from holdfast.core.steps import check_undone
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.errors import Busy, HoldfastError, UsageError
from holdfast.runtime import clock
from holdfast.runtime.client import Client
from holdfast.runtime.driver_async import Driver
from holdfast.runtime.flavour import ASYNC
from holdfast.runtime.frames import without_frames
from holdfast.stores.base import Store
from holdfast.stores.url import hidden_options

if ASYNC:
    from holdfast.api.awaitable_lease import Acquiring

P = ParamSpec("P")
R = TypeVar("R")


def connect(
    url: StoreSource = DEFAULT,
    *,
    owner: str | None = None,
    ttl: Seconds = 30.0,
    store_patience: Seconds = 60.0,
    beats_per_second: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    sinks: Iterable[Callable[[Event], None]] = (),
    **store_options: Any,
) -> Locks:
    """Open the locks of a store.

    url               the store; by default $HOLDFAST_URL, or else an SQLite file of this
                      user on this machine. None switches locking off.
    owner             the name that others see as the holder; by default host and process id
    ttl               the default ttl: how long a lease outlives a holder that died
    store_patience    how long a waiting call goes on trying while the store is in trouble
    beats_per_second  a cap on renewals, for stores that charge for them
    on_event          a function that is called with every event, in the thread in which it
                      happens; the keeper waits for it, so it should return soon
    sinks             more such functions
    """
    url, store_options = hidden(url), hidden_options(store_options)
    make = functools.partial(
        Locks,
        owner=owner,
        ttl=ttl,
        store_patience=store_patience,
        beats_per_second=beats_per_second,
        on_event=on_event,
        sinks=sinks,
    )
    return connect_to(url, store_options, make)


class Locks:
    """The locks of one store."""

    def __init__(
        self, store: Store, *, owner: str | None = None, ttl: Seconds = 30.0,
        store_patience: Seconds = 60.0, beats_per_second: float | None = None,
        on_event: Callable[[Event], None] | None = None,
        sinks: Iterable[Callable[[Event], None]] = (),
    ) -> None:  # fmt: skip
        listeners = [*sinks] if on_event is None else [on_event, *sinks]
        for listener in listeners:
            check_callback(listener, "on_event" if listener is on_event else "sinks")
        self._client = Client(store, listeners, check_cap(beats_per_second))
        self._leases = self._client.leases
        self._observations = self._client.observations
        self._requests = Requests(
            store.facts,
            self._client.check_usable,
            owner=owner,
            ttl=ttl,
            store_patience=store_patience,
        )
        if ASYNC:
            served_by = store.to_async()
        else:
            served_by = store
        self._driver = Driver(
            served_by,
            self._observations,
            self._client.sinks.emit,
            self._keep,
            self._client.check_usable,
        )

    def __repr__(self) -> str:
        name = "aio.Locks" if ASYNC else "Locks"
        return f"<{name} on {self.facts.name} as {self._requests.owner!r}>"

    @property
    def facts(self) -> Facts:
        """What the store guarantees and what it does not."""
        return self._client.facts

    # --- acquire ----------------------------------------------------------------------------

    def acquire(
        self,
        key: str,
        *,
        ttl: Seconds | None = None,
        timeout: Seconds | None = None,
        mode: str | None = None,
        limit: int | None = None,
        fair: bool | None = None,
        owner: str | None = None,
        note: dict[str, Any] | None = None,
        keep: bool = True,
        max_hold: Seconds | None = None,
    ) -> Acquiring[Lease]:
        """Get the lock, and wait for it if need be. Await it, or use it in `async with`.

        ttl       how long the lease outlives this process; it is renewed while the process lives
        timeout   how long to wait (None: as long as it takes) before `AcquireTimeout`
        mode      `exclusive`, or `shared` with other shared leases
        limit     instead of a mode: how many holders there may be at once
        fair      queue at once (True), after 1.5 s (None; on Redis at once) or never (False)
        owner     the name that others see as the holder
        note      a small dict for people and programs that look at the lock
        keep      renew in the background; if False, the lease runs out after its ttl
        max_hold  stop renewing after this time
        """
        if ASYNC:
            return Acquiring(
                functools.partial(
                    self._acquire, key, ttl, timeout, mode, limit, fair, owner, note, keep, max_hold
                )
            )
        else:
            return self._acquire(key, ttl, timeout, mode, limit, fair, owner, note, keep, max_hold)

    async def _acquire(
        self, key: str, ttl: Seconds | None, timeout: Seconds | None, mode: str | None,
        limit: int | None, fair: bool | None, owner: str | None, note: dict[str, Any] | None,
        keep: bool, max_hold: Seconds | None,
    ) -> Lease:  # fmt: skip
        terms = self._requests.terms(timeout, fair, keep, max_hold)
        attempt = self._requests.claim(key, ttl, mode, limit, owner, note, terms)
        steps = acquire_steps(self._observations, attempt, terms, clock.monotonic())
        return await self._enter(attempt, steps, "Acquired")

    async def try_acquire(
        self, key: str, *, ttl: Seconds | None = None, mode: str | None = None,
        limit: int | None = None, owner: str | None = None, note: dict[str, Any] | None = None,
        keep: bool = True, max_hold: Seconds | None = None,
    ) -> Lease | None:  # fmt: skip
        """Get the lock if it is free now. Returns None if it is not. Never waits."""
        try:
            return await self._acquire(key, ttl, 0, mode, limit, None, owner, note, keep, max_hold)
        except Busy:
            return None

    def acquire_all(
        self, wants: Iterable[str | Want], *, ttl: Seconds | None = None,
        timeout: Seconds | None = None, fair: bool | None = None, owner: str | None = None,
        note: dict[str, Any] | None = None, keep: bool = True, max_hold: Seconds | None = None,
    ) -> Acquiring[Leases]:  # fmt: skip
        """Get several locks, all or none. `wants` are keys, or `Want`s with a mode of their own.

        The locks are acquired in one fixed order, whatever the order of `wants`, so that two
        parties that want the same locks never wait for each other in a circle.
        """
        if ASYNC:
            return Acquiring(
                functools.partial(
                    self._acquire_all, wants, ttl, timeout, fair, owner, note, keep, max_hold
                )
            )
        else:
            return self._acquire_all(wants, ttl, timeout, fair, owner, note, keep, max_hold)

    async def _acquire_all(
        self, wants: Iterable[str | Want], ttl: Seconds | None, timeout: Seconds | None,
        fair: bool | None, owner: str | None, note: dict[str, Any] | None, keep: bool,
        max_hold: Seconds | None,
    ) -> Leases:  # fmt: skip
        terms = self._requests.terms(timeout, fair, keep, max_hold)
        attempts = [
            self._requests.claim(want.key, ttl, want.mode, want.limit, owner, note, terms)
            for want in check_wants(wants)
        ]
        for attempt in attempts:
            self._leases.started(attempt)
        try:
            await self._driver.run(acquire_all_steps(self._observations, attempts, terms))
            return Leases([self._leases.kept(attempt) for attempt in attempts])
        except BaseException as why:
            self._leases.disown(attempts)
            await self._undo(attempts, why)
            raise

    async def join(
        self, ticket: str, *, keep: bool = True, max_hold: Seconds | None = None
    ) -> Lease:
        """Keep a lease alive together with the party that made the ticket with `share()`."""
        ticket = hidden(ticket)
        attempt, care = self._requests.join(ticket, keep, max_hold)
        until = clock.monotonic() + RETRY_FOR
        steps = enter_steps(self._observations, attempt, care, until)
        return await self._enter(attempt, steps, "Joined")

    async def take(
        self, ticket: str, *, ttl: Seconds | None = None, owner: str | None = None,
        note: dict[str, Any] | None = None, keep: bool = True, max_hold: Seconds | None = None,
    ) -> Lease:  # fmt: skip
        """Become the holder of a lease that was handed over, with a new fence."""
        ticket = hidden(ticket)
        attempt = self._requests.take(ticket, owner, ttl, note)
        care = self._requests.care(keep, max_hold)
        until = clock.monotonic() + RETRY_FOR
        steps = enter_steps(self._observations, attempt, care, until)
        return await self._enter(attempt, steps, "Took over")

    async def _enter(self, attempt: Attempt, steps: Steps[Hold], how: str) -> Lease:
        self._leases.started(attempt)
        try:
            hold = await self._driver.run(steps)
            lease = Lease(self._leases, self._driver, self._observations, hold)
            self._leases.adopt(lease, how, attempt.number)
            return lease
        except BaseException as why:
            await self._undo((attempt,), why)
            raise

    async def _undo(self, attempts: Sequence[Attempt], why: BaseException) -> None:
        try:
            await self._driver.undo(attempts)
        finally:
            self._leases.gave_up(attempts, why)
        check_undone(attempts, why)

    def _keep(self, hold: Hold) -> None:
        """Look after one lease of an acquire_all that is still going on."""
        self._leases.keep(Lease(self._leases, self._driver, self._observations, hold))

    @overload
    def guard(
        self, key: str, *, busy: OrElse = "wait", **options: Any
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def guard(
        self, key: str, *, busy: OnBusy, **options: Any
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]: ...
    def guard(self, key: str, *, busy: OnBusy = "wait", **options: Any) -> Any:
        """Run an async function under a lock whose key is made from its arguments.

        If the lock is taken, `busy` decides: `skip` returns None and `raise` raises `Busy`, at
        once or after `timeout`; `wait` waits. Other options are those of `acquire`.
        """
        passed_on = options_for(self.acquire, key, busy, options)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            guarded = Guarded(function, key, busy)
            _check_flavour(function)

            @functools.wraps(function)
            async def run(*args: Any, **kwargs: Any) -> Any:
                name = guarded.key(args, kwargs)
                try:
                    lease = await self.acquire(name, **passed_on)
                except Busy:
                    if busy != "skip":
                        raise
                    guarded.tell_skipped(name)
                    return None
                async with lease:
                    with Within(lease):
                        outcome = await function(*args, **kwargs)
                        guarded.check_ran(outcome)
                        return outcome

            return run

        return decorate

    # --- look, evict, purge -----------------------------------------------------------------

    async def show(self, key: str) -> LockInfo:
        """Returns who holds a lock and who waits for it."""
        key = self._requests.key(key)
        return lock_info(await self._driver.run(show_steps(self._observations, key)))

    async def wait_until_free(self, key: str, timeout: Seconds | None = None) -> LockInfo:
        """Wait until nobody holds a lock, without acquiring it. Returns the lock as it was seen.

        Raises `AcquireTimeout`, which says who holds the lock, after `timeout` seconds; with a
        timeout of 0 it looks once and raises `Busy`. `show()` tells the holder's owner, note and
        age meanwhile. By the time this returns, somebody else may hold the lock again.
        """
        wait = self._requests.wait(key, timeout)
        return lock_info(await self._driver.run(wait_until_free_steps(self._observations, wait)))

    async def list(self, prefix: str = "", *, free: bool = False) -> AsyncIterator[LockInfo]:
        """Yields the locks whose keys start with a prefix, page by page. With `free=True` also
        those that nobody holds or waits for."""
        prefix = check_prefix(prefix)
        cursor = None
        while True:
            self._client.check_usable()
            page = await self._driver.run(list_steps(self._observations, prefix, cursor))
            for seen in page.locks:
                info = lock_info(seen)
                if free or info.waiters or not info.free:
                    yield info
            cursor = page.cursor
            if cursor is None:
                return

    async def holders(self, prefix: str = "") -> AsyncIterator[HolderInfo]:
        """Yields the holders of the locks whose keys start with a prefix, page by page."""
        async for info in self.list(prefix):
            for holder in info.holders:
                yield holder

    async def evict(self, key: str, *, fence: int | None = None) -> tuple[HolderInfo, ...]:
        """Evict the current holders, or only the one with `fence`. Returns those evicted.

        They learn of it at their next renewal; until then only the fence tells them apart.
        """
        key = self._requests.key(key)
        check_fence(fence)
        until = clock.monotonic() + RETRY_FOR
        steps = evict_steps(self._observations, key, fence, until)
        evicted = await self._driver.run(steps)
        self._leases.evicted(key, evicted.holders)
        return tuple(holder_info(key, holder, None, 0) for holder in evicted.holders)

    async def purge(self, prefix: str = "", *, older_than: Seconds = 24 * 3600.0) -> int:
        """Drop the records of locks that nobody has used for a while. Returns how many."""
        prefix = check_prefix(prefix)
        retention = check_retention(older_than)
        page = Purged(0, None)
        while True:
            self._client.check_usable()
            steps = purge_steps(self._observations, prefix, page, retention)
            page = await self._driver.run(steps)
            if page.cursor is None:
                return page.dropped

    # --- life -------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Create what the store needs. May be repeated."""
        self._client.check_usable()
        try:
            if ASYNC:
                await self._driver.store_here().setup()
            else:
                self._client.store.setup()
        except HoldfastError as trouble:
            without_frames(trouble)
            raise

    async def close(self) -> None:
        """Close the client. Leases that are still held end for this client and are given back, as
        far as that takes less than two seconds. Leases that were shared, joined or acquired with
        `keep=False` stay until their ttl is over."""
        if not self._client.usable:
            return
        if ASYNC:
            store = self._driver.store_here(to_close=True)
        else:
            store = self._client.store
        giving_back = self._client.close()
        if giving_back is not None:
            await giving_back.wait_async()
            await store.close()

    async def __aenter__(self) -> Locks:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _check_flavour(function: Callable[..., Any]) -> None:
    """Raise unless the function is of this face: async for asyncio, plain for the blocking one."""
    if ASYNC:
        if not inspect.iscoroutinefunction(function):
            raise UsageError("This is not an async function: guard it with holdfast's locks.")
    else:
        if inspect.iscoroutinefunction(function):
            raise UsageError("This is an async function: guard it with holdfast.aio's locks.")
