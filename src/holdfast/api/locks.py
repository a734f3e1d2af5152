"""The blocking face: `holdfast.connect()`, `Locks`, `Lease`. `aio` is its mirror."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.api.guard import Guarded, OnBusy, OrElse, Within, options_for
from holdfast.api.info import HolderInfo, LockInfo, holder_info, lock_info
from holdfast.api.leases import Lease, Leases
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
from holdfast.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["Lease", "Leases", "Locks", "connect"]


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
    """Open the locks of a store.

    url               which store; without it $HOLDFAST_URL, or else an SQLite file of this
                      user on this machine. None switches locking off.
    owner             who you are, for people; by default host and process id
    ttl               how long a lease outlives a holder that died, unless told otherwise
    store_patience    for how long a store in trouble is tried again by those who wait
    beats_per_second  a cap on renewals, for stores that charge for them
    on_event          is called with every event, in whatever thread it happens; the keeper waits
                      for it too, so it should not take long
    """
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
    """The locks of one store. Safe to use from many threads; not across a fork."""

    def __init__(self, store: Store, **options: Any) -> None:
        self._client = Client(store, **options)
        self._client.make_lease = functools.partial(Lease, self._client)

    def __repr__(self) -> str:
        return f"<Locks on {self._client.facts.name} as {self._client.owner!r}>"

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
    ) -> Lease:
        """Get the lock, and wait for it if need be.

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
        client = self._client
        terms = client.terms(timeout, fair, keep, max_hold)
        attempt = client.claim(key, ttl, mode, limit, owner, note, terms)
        return self._enter(
            attempt,
            acquire_steps(client.observations, attempt, terms, clock.monotonic()),
            "Acquired",
        )

    def try_acquire(
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
            return self.acquire(
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
    ) -> Leases:
        """Get several locks, all or none; keys, or `Want`s with a mode of their own.

        Everyone gets them in the same order, whatever the order here, so that two parties
        who want the same locks never wait for each other in a circle.
        """
        client = self._client
        terms = client.terms(timeout, fair, keep, max_hold)
        attempts = [
            client.claim(want.key, ttl, want.mode, want.limit, owner, note, terms)
            for want in check_wants(wants)
        ]
        try:
            client.driver.run(acquire_all_steps(client.observations, attempts, terms))
            return Leases([client.adopted(attempt) for attempt in attempts])
        except BaseException:
            client.disown(attempts)
            client.driver.undo(attempts)
            raise

    def join(self, ticket: str, *, keep: bool = True, max_hold: Seconds | None = None) -> Lease:
        """Keep a lease alive together with the party who gave the ticket (`share()`)."""
        client = self._client
        attempt, may_release = client.joining(ticket)
        care = client.joined_care(keep, max_hold, may_release)
        until = clock.monotonic() + PATIENCE
        return self._enter(
            attempt, enter_steps(client.observations, attempt, care, until), "Joined"
        )

    def take(
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
        return self._enter(
            attempt, enter_steps(client.observations, attempt, care, until), "Took over"
        )

    def _enter(self, attempt: Attempt, steps: Steps[Hold], how: str) -> Lease:
        client = self._client
        try:
            hold = client.driver.run(steps)
            lease: Lease = client.adopt(hold, how)
            return lease
        except BaseException:
            client.driver.undo((attempt,))
            raise

    @overload
    def guard(
        self, key: str, *, busy: OrElse = "wait", **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    @overload
    def guard(
        self, key: str, *, busy: OnBusy, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...
    def guard(self, key: str, *, busy: OnBusy = "wait", **options: Any) -> Any:
        """Run a function under a lock whose key is made from its arguments.

        When the lock is taken: `skip` returns None and `raise` raises `Busy`, at once or after
        `timeout`; `wait` waits. Other options are those of `acquire`.
        """
        from inspect import iscoroutinefunction

        passed_on = options_for(self.acquire, key, busy, options)

        def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
            if iscoroutinefunction(function):
                raise UsageError("This is an async function: guard it with holdfast.aio's locks.")
            guarded = Guarded(function, key, busy)

            @functools.wraps(function)
            def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
                name = guarded.key(args, kwargs)
                try:
                    lease = self.acquire(name, **passed_on)
                except Busy:
                    if busy != "skip":
                        raise
                    guarded.tell_skipped(name)
                    return None
                with lease, Within(lease):
                    outcome = function(*args, **kwargs)
                    guarded.check_ran(outcome)
                    return outcome

            return run

        return decorate

    # --- look and rule ----------------------------------------------------------------------

    def show(self, key: str) -> LockInfo:
        """Who holds a lock and who waits for it."""
        client = self._client
        client.check_usable()
        key = check_key(key, client.facts.max_key_bytes)
        return lock_info(client.driver.run(show_steps(client.observations, key)))

    def wait_until_free(self, key: str, timeout: Seconds | None = None) -> LockInfo:
        """Wait until nobody holds a lock, without acquiring it: the lock as it was then seen.

        After `timeout` seconds `AcquireTimeout` says who holds it; with 0 it is a look, and
        `Busy`. Work that goes on under the lock can be followed meanwhile: `show()` tells
        its owner, note and age. By the time this returns, somebody else may hold it again.
        """
        client = self._client
        wait = client.patience(key, timeout)
        return lock_info(client.driver.run(wait_until_free_steps(client.observations, wait)))

    def list(self, prefix: str = "", *, free: bool = False) -> Iterator[LockInfo]:
        """The locks whose keys start with a prefix, page by page; `free` ones too if asked."""
        client = self._client
        prefix = check_prefix(prefix)
        cursor = None
        while True:
            client.check_usable()
            page = client.driver.run(list_steps(client.observations, prefix, cursor))
            for seen in page.locks:
                info = lock_info(seen)
                if free or info.waiters or not info.free:
                    yield info
            cursor = page.cursor
            if cursor is None:
                return

    def holders(self, prefix: str = "") -> Iterator[HolderInfo]:
        """Everyone who holds a lock whose key starts with a prefix, page by page."""
        for info in self.list(prefix):
            yield from info.holders

    def evict(self, key: str, *, fence: int | None = None) -> tuple[HolderInfo, ...]:
        """Evict the current holders, or only the one with `fence`. Returns those evicted.

        They learn of it at their next renewal; until then only the fence tells them apart.
        """
        client = self._client
        client.check_usable()
        key = check_key(key, client.facts.max_key_bytes)
        check_fence(fence)
        until = clock.monotonic() + PATIENCE
        evicted = client.driver.run(evict_steps(client.observations, key, fence, until))
        client.evicted(key, evicted.holders)
        return tuple(holder_info(key, holder, None, 0) for holder in evicted.holders)

    def purge(self, prefix: str = "", *, older_than: Seconds = 24 * 3600.0) -> int:
        """Drop the records of locks that nobody has used for a while; how many they were."""
        client = self._client
        prefix = check_prefix(prefix)
        retention = check_retention(older_than)
        dropped, cursor = 0, None
        while True:
            client.check_usable()
            page = client.driver.run(purge_steps(client.observations, prefix, cursor, retention))
            dropped += page.dropped
            cursor = page.cursor
            if cursor is None:
                return dropped

    # --- life -------------------------------------------------------------------------------

    def setup(self) -> None:
        """Create what the store needs. Harmless to repeat."""
        self._client.check_usable()
        self._client.store.setup()

    def close(self) -> None:
        """Let go of the store. Leases that are still held are lost to this client, and given back
        as far as that can be done within two seconds. Those that were shared, joined or acquired
        with `keep=False` stay until their ttl."""
        giving_back = self._client.close()
        if giving_back is not None:
            giving_back.wait()
            self._client.store.close()

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
