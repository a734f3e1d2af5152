"""The asyncio face: the same names as `holdfast`, awaited.

from holdfast import aio

locks = aio.connect()
async with locks.acquire("pipeline:orders", ttl=60) as lease:
    await load(fence=lease.fence)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.api.guard import Guarded, OnBusy, OrElse, Within, options_for
from holdfast.api.info import HolderInfo, LockInfo, holder_info, lock_info
from holdfast.api.leases_async import Acquiring, Lease, Leases
from holdfast.api.options import Seconds, check_fence, check_key, check_prefix, check_retention
from holdfast.api.store_source import DEFAULT, Place, connect_to
from holdfast.api.wants import Want, check_wants
from holdfast.core.acquiring import acquire_all_steps, acquire_steps
from holdfast.core.contract import Facts
from holdfast.core.effects import Steps
from holdfast.core.events import Event
from holdfast.core.holds import Attempt, Hold
from holdfast.core.listing import list_steps, purge_steps, show_steps
from holdfast.core.steps import enter_steps, evict_steps
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.errors import Busy, UsageError
from holdfast.runtime import clock
from holdfast.runtime.client import PATIENCE, Client
from holdfast.runtime.driver_async import AsyncDriver
from holdfast.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["Lease", "Leases", "Locks", "Want", "connect"]


def connect(
    url: Place = DEFAULT,
    *,
    owner: str | None = None,
    ttl: Seconds = 30.0,
    store_patience: Seconds = 60.0,
    beats_per_second: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    **store_options: Any,
) -> Locks:
    """Open the locks of a store, for asyncio. See `holdfast.connect`."""
    make = functools.partial(
        Locks,
        owner=owner,
        ttl=ttl,
        store_patience=store_patience,
        beats_per_second=beats_per_second,
        on_event=on_event,
    )
    return connect_to(url, store_options, make)


class Locks:
    """The locks of one store, for the tasks of one event loop at a time."""

    def __init__(self, store: Store, **options: Any) -> None:
        self._client = Client(store, **options)
        self._driver = AsyncDriver(
            store.to_async(),
            self._client.observations,
            self._client.emit,
            self._client.keep,
            self._client.check_usable,
        )
        self._client.make_lease = functools.partial(Lease, self._client, self._driver)

    def __repr__(self) -> str:
        return f"<aio.Locks on {self._client.facts.name} as {self._client.owner!r}>"

    @property
    def facts(self) -> Facts:
        """What the store is and is not."""
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

        ttl       how long it outlives this process; it is renewed while this process lives
        timeout   how long to wait (None: as long as it takes), then `AcquireTimeout`
        mode      `exclusive`, or `shared` with other shared ones
        limit     instead of a mode: be one of so many
        fair      queue at once (True), after a moment (None) or never (False)
        owner     who you are, for people
        note      a small dict for people and programs who look at the lock
        keep      renew in the background; without it, the lease just runs out
        max_hold  stop renewing after this long
        """

        def run() -> Coroutine[Any, Any, Lease]:
            client = self._client
            terms = client.terms(timeout, fair, keep, max_hold)
            attempt = client.claim(key, ttl, mode, limit, owner, note, terms)
            steps = acquire_steps(client.observations, attempt, terms, clock.monotonic())
            return self._enter(attempt, steps, "Acquired")

        return Acquiring(run)

    async def try_acquire(
        self,
        key: str,
        *,
        ttl: Seconds | None = None,
        mode: str | None = None,
        limit: int | None = None,
        owner: str | None = None,
        note: dict[str, Any] | None = None,
        keep: bool = True,
        max_hold: Seconds | None = None,
    ) -> Lease | None:
        """Get the lock if it is free now; None if it is not. Never waits."""
        try:
            return await self.acquire(
                key, ttl=ttl, timeout=0, mode=mode, limit=limit,
                owner=owner, note=note, keep=keep, max_hold=max_hold,
            )  # fmt: skip
        except Busy:
            return None

    def acquire_all(
        self,
        wants: Iterable[str | Want],
        *,
        ttl: Seconds | None = None,
        timeout: Seconds | None = None,
        fair: bool | None = None,
        owner: str | None = None,
        note: dict[str, Any] | None = None,
        keep: bool = True,
        max_hold: Seconds | None = None,
    ) -> Acquiring[Leases]:
        """Get several locks, all or none; keys, or `Want`s with a mode of their own.

        Everyone gets them in the same order, whatever the order here, so that two parties
        who want the same locks never wait for each other in a circle.
        """

        async def run() -> Leases:
            client = self._client
            terms = client.terms(timeout, fair, keep, max_hold)
            attempts = [
                client.claim(want.key, ttl, want.mode, want.limit, owner, note, terms)
                for want in check_wants(wants)
            ]
            try:
                await self._driver.run(acquire_all_steps(client.observations, attempts, terms))
                return Leases([client.adopted(attempt) for attempt in attempts])
            except BaseException:
                client.disown(attempts)
                await self._driver.undo(attempts)
                raise

        return Acquiring(run)

    async def join(
        self, ticket: str, *, keep: bool = True, max_hold: Seconds | None = None
    ) -> Lease:
        """Keep a lease alive together with the party who gave the ticket (`share()`)."""
        client = self._client
        attempt, may_release = client.joining(ticket)
        care = client.joined_care(keep, max_hold, may_release)
        until = clock.monotonic() + PATIENCE
        steps = enter_steps(client.observations, attempt, care, until)
        return await self._enter(attempt, steps, "Joined")

    async def take(
        self,
        ticket: str,
        *,
        ttl: Seconds | None = None,
        owner: str | None = None,
        note: dict[str, Any] | None = None,
        keep: bool = True,
        max_hold: Seconds | None = None,
    ) -> Lease:
        """Become the holder of a lease that was handed over, with a new fence."""
        client = self._client
        attempt = client.taking(ticket, owner, ttl, note)
        care = client.care(keep, max_hold)
        until = clock.monotonic() + PATIENCE
        steps = enter_steps(client.observations, attempt, care, until)
        return await self._enter(attempt, steps, "Took over")

    async def _enter(self, attempt: Attempt, steps: Steps[Hold], how: str) -> Lease:
        client = self._client
        try:
            hold = await self._driver.run(steps)
            lease: Lease = client.adopt(hold, how)
            return lease
        except BaseException:
            await self._driver.undo((attempt,))
            raise

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

        When the lock is taken: `skip` returns None and `raise` raises `Busy`, at once or after
        `timeout`; `wait` waits. Other options are those of `acquire`.
        """

        passed_on = options_for(self.acquire, key, busy, options)

        def decorate(
            function: Callable[P, Awaitable[R]],
        ) -> Callable[P, Coroutine[Any, Any, R | None]]:
            guarded = Guarded(function, key, busy)
            if not inspect.iscoroutinefunction(function):
                raise UsageError("This is not an async function: guard it with holdfast's locks.")

            @functools.wraps(function)
            async def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
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

    # --- look and rule ----------------------------------------------------------------------

    async def show(self, key: str) -> LockInfo:
        """Who holds a lock and who waits for it."""
        client = self._client
        client.check_usable()
        key = check_key(key, client.facts.max_key_bytes)
        return lock_info(await self._driver.run(show_steps(client.observations, key)))

    async def wait_until_free(self, key: str, timeout: Seconds | None = None) -> LockInfo:
        """Wait until nobody holds a lock, without acquiring it: the lock as it was then seen.

        After `timeout` seconds `AcquireTimeout` says who holds it; with 0 it is a look, and
        `Busy`. Work that goes on under the lock can be followed meanwhile: `show()` tells
        its owner, note and age. By the time this returns, somebody else may hold it again.
        """
        client = self._client
        wait = client.patience(key, timeout)
        return lock_info(await self._driver.run(wait_until_free_steps(client.observations, wait)))

    async def list(self, prefix: str = "", *, free: bool = False) -> AsyncIterator[LockInfo]:
        """The locks whose keys start with a prefix, page by page; `free` ones too if asked."""
        client = self._client
        prefix = check_prefix(prefix)
        cursor = None
        while True:
            client.check_usable()
            page = await self._driver.run(list_steps(client.observations, prefix, cursor))
            for seen in page.locks:
                info = lock_info(seen)
                if free or info.waiters or not info.free:
                    yield info
            cursor = page.cursor
            if cursor is None:
                return

    async def holders(self, prefix: str = "") -> AsyncIterator[HolderInfo]:
        """Everyone who holds a lock whose key starts with a prefix, page by page."""
        async for info in self.list(prefix):
            for holder in info.holders:
                yield holder

    async def evict(self, key: str, *, fence: int | None = None) -> tuple[HolderInfo, ...]:
        """Evict the current holders, or only the one with `fence`. Returns those evicted.

        They learn of it at their next renewal; until then only the fence tells them apart.
        """
        client = self._client
        client.check_usable()
        key = check_key(key, client.facts.max_key_bytes)
        check_fence(fence)
        until = clock.monotonic() + PATIENCE
        evicted = await self._driver.run(evict_steps(client.observations, key, fence, until))
        client.evicted(key, evicted.holders)
        return tuple(holder_info(key, holder, None, 0) for holder in evicted.holders)

    async def purge(self, prefix: str = "", *, older_than: Seconds = 24 * 3600.0) -> int:
        """Drop the records of locks that nobody has used for a while; how many they were."""
        client = self._client
        prefix = check_prefix(prefix)
        retention = check_retention(older_than)
        dropped, cursor = 0, None
        while True:
            client.check_usable()
            page = await self._driver.run(
                purge_steps(client.observations, prefix, cursor, retention)
            )
            dropped += page.dropped
            cursor = page.cursor
            if cursor is None:
                return dropped

    # --- life -------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Create what the store needs. Harmless to repeat."""
        self._client.check_usable()
        await self._driver.store_here().setup()

    async def close(self) -> None:
        """Let go of the store. Leases that are still held are lost to this client, and given back
        as far as that can be done within two seconds. Those that were shared, joined or acquired
        with `keep=False` stay until their ttl."""
        if self._client.usable:
            store = self._driver.store_here(to_close=True)
            giving_back = self._client.close()
            if giving_back is not None:
                await giving_back.wait_async()
                await store.close()

    async def __aenter__(self) -> Locks:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
