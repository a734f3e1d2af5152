# Made from locks_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""`connect()` and `Locks`: the entry points for callers, written once for both faces."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, ParamSpec, TypeVar, overload

from holdfast.api.client import FaceClient
from holdfast.api.guard import Guarded, OnBusy, OrElse, Within, nothing, options_for
from holdfast.api.info import (
    HolderInfo,
    LockInfo,
    WaiterInfo,
    holder_info,
    lock_info,
    waiter_info,
)
from holdfast.api.leases import Lease, Leases
from holdfast.api.options import (
    OnLost,
    Seconds,
    check_callback,
    check_fence,
    check_on_lost,
    check_owner,
    check_prefix,
    check_reason,
    check_retention,
    check_switch,
)
from holdfast.api.patterns import Patterns
from holdfast.api.store_source import DEFAULT, StoreSource, connect_in_child, connect_to
from holdfast.api.wants import Want, check_wants
from holdfast.core.acquiring import acquire_all_steps
from holdfast.core.contract import Facts
from holdfast.core.discreet import hidden
from holdfast.core.events import Event
from holdfast.core.evicting import evict_steps, evict_waiters_steps
from holdfast.core.handing_over import enter_steps
from holdfast.core.listing import Purged, list_steps, purge_steps, show_steps
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.errors import Busy, HoldfastError, UsageError
from holdfast.observe.log import log_in_vain
from holdfast.runtime import clock, fork_hooks
from holdfast.runtime.frames import without_frames
from holdfast.runtime.giving_back import GivingBack
from holdfast.stores.base import Store
from holdfast.stores.url import hidden_options

P = ParamSpec("P")
R = TypeVar("R")


def connect(
    url: StoreSource = DEFAULT,
    *,
    owner: str | None = None,
    ttl: Seconds = 30.0,
    request_timeout: Seconds = 5.0,
    store_patience: Seconds | None = 60.0,
    long_wait: Seconds | None = 10.0,
    beats_per_second: float | None = None,
    pass_on: bool = True,
    on_event: Callable[[Event], None] | None = None,
    sinks: Iterable[Callable[[Event], None]] = (),
    **store_options: Any,
) -> Locks:
    """Open the locks of a store.

    url               the store: a URL, an open store, or an engine or a client of yours; by
                      default $HOLDFAST_URL, or else an SQLite file of this user on this machine.
                      None switches locking off.
    owner             the name that others see as the holder; by default host and process id
    ttl               the default ttl: how long a lease outlives a holder that died
    request_timeout   how long the store may take to answer; a call that does not wait for a lock
                      (`try_acquire`, `show`, `release`, …) raises after that time
    store_patience    how long a call that waits for a lock goes on trying while the store is in
                      trouble; None: for ever, or until its own timeout is over
    long_wait         a wait for a lock that lasts longer than this is told in the log; None: never
    beats_per_second  a cap on renewals, for stores that charge for them
    sinks             functions that are called with every event (`holdfast.events`), each in a
                      thread of its own: one that is slow or fails harms nothing
    pass_on           threads and tasks of this client that want the same lock wait in line in the
                      process, and a lock that is released goes to the next of them without a
                      request; False: each of them waits at the store
    on_event          a function that is called with every event at once, in the thread in which
                      it happens; everybody waits for it, the keeper too, so it must return soon

    Everything else is an option of the store, as in the query of its URL.
    """
    url, store_options = hidden(url), hidden_options(store_options)
    make = functools.partial(
        Locks,
        owner=owner,
        ttl=ttl,
        request_timeout=request_timeout,
        store_patience=store_patience,
        long_wait=long_wait,
        beats_per_second=beats_per_second,
        pass_on=pass_on,
        on_event=on_event,
        sinks=sinks,
    )
    return connect_to(url, store_options, make)


class Locks(Patterns):
    """The locks of one store."""

    def __init__(
        self, store: Store, *, owner: str | None = None, ttl: Seconds = 30.0,
        request_timeout: Seconds = 5.0, store_patience: Seconds | None = 60.0,
        long_wait: Seconds | None = 10.0, beats_per_second: float | None = None,
        pass_on: bool = True,
        on_event: Callable[[Event], None] | None = None,
        sinks: Iterable[Callable[[Event], None]] = (),
    ) -> None:  # fmt: skip
        told_at_once = [] if on_event is None else [check_callback(on_event, "on_event")]
        told = [check_callback(sink, "sinks") for sink in sinks]
        self._make_client = functools.partial(
            FaceClient,
            owner=owner,
            ttl=ttl,
            request_timeout=request_timeout,
            store_patience=store_patience,
            long_wait=long_wait,
            beats_per_second=beats_per_second,
            pass_on=pass_on,
            inline=told_at_once,
            sinks=told,
        )
        self._client = self._make_client(store)

    def __repr__(self) -> str:
        name = "Locks"
        return f"<{name} on {self.facts.name} as {self._client.requests.owner!r}>"

    @property
    def facts(self) -> Facts:
        """What the store guarantees and what it does not."""
        return self._client.facts

    def _here(self) -> FaceClient:
        """Returns the client of this process. A forked child makes its own at first use. A call
        asks once, when it begins: it must not end in a child what the parent began."""
        client = self._client
        return client if client.process == os.getpid() else self._in_child()

    def _in_child(self) -> FaceClient:
        with fork_hooks.one_at_a_time():
            client = self._client
            if client.process != os.getpid() and not client.closed:
                client.abandon()
                self._client = client = connect_in_child(client.store, self._make_client)
            return client

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
        on_lost: OnLost = None,
    ) -> Lease:
        """Get the lock, and wait for it if need be. Use it in a `with` block.

        ttl       how long the lease outlives this process; it is renewed while the process lives
        timeout   how long to wait (None: until it is free) before `AcquireTimeout`
        mode      `exclusive`, or `shared` with other shared leases
        limit     instead of a mode: how many holders there may be at once
        fair      take a place in the queue at once (True) or never (False); None: at once, but on
                  DynamoDB, in object stores and on an SQLAlchemy engine of yours after 1.5 s
        owner     the name that others see as the holder
        note      a small dict for people and programs that look at the lock
        keep      renew in the background; if False, the lease runs out after its ttl
        max_hold  stop renewing after this time
        on_lost   a function that is called with the lease when it is lost; in asyncio also
                  `"cancel"`: the task inside the block is cancelled, and the end of the block
                  raises `LeaseLost`
        """
        return self._here().acquire(
            key, ttl, timeout, mode, limit, fair, owner, note, keep, max_hold, on_lost
        )

    def try_acquire(
        self, key: str, *, ttl: Seconds | None = None, mode: str | None = None,
        limit: int | None = None, owner: str | None = None, note: dict[str, Any] | None = None,
        keep: bool = True, max_hold: Seconds | None = None,
    ) -> Lease | None:  # fmt: skip
        """Get the lock if it is free now. Returns None if it is not. Never waits for it.

        The options are those of `acquire`.
        """
        try:
            return self._here().acquire(key, ttl, 0, mode, limit, None, owner, note, keep, max_hold)
        except Busy as taken:
            log_in_vain(key, taken)
            return None

    def acquire_all(
        self, wants: Iterable[str | Want], *, ttl: Seconds | None = None,
        timeout: Seconds | None = None, fair: bool | None = None, owner: str | None = None,
        note: dict[str, Any] | None = None, keep: bool = True, max_hold: Seconds | None = None,
        on_lost: OnLost = None,
    ) -> Leases:  # fmt: skip
        """Get several locks, all or none. `wants` are keys, or `Want`s with a mode of their own.
        The options are those of `acquire`.

        The locks are acquired in one fixed order, whatever the order of `wants`, so that two
        parties that want the same locks never wait for each other in a circle.
        """
        return self._acquire_all(wants, ttl, timeout, fair, owner, note, keep, max_hold, on_lost)

    def _acquire_all(
        self, wants: Iterable[str | Want], ttl: Seconds | None, timeout: Seconds | None,
        fair: bool | None, owner: str | None, note: dict[str, Any] | None, keep: bool,
        max_hold: Seconds | None, on_lost: OnLost,
    ) -> Leases:  # fmt: skip
        here = self._here()
        if on_lost is not None:
            check_on_lost(on_lost, None)
        terms = here.requests.terms(timeout, fair, keep, max_hold)
        attempts = [
            here.requests.claim(want.key, ttl, want.mode, want.limit, owner, note, terms)
            for want in check_wants(wants)
        ]
        now = clock.monotonic()
        for attempt in attempts:
            here.leases.started(attempt, now)
        try:
            here.leases.enter(id(attempts))
            here.driver.run(acquire_all_steps(here.observations, attempts, terms))
            leases = Leases([here.leases.kept(attempt) for attempt in attempts])
            for lease in leases:
                lease._react_to_loss(on_lost)
            return leases
        except BaseException as why:
            here.undo(attempts, why, here.leases.disown(attempts))
            raise
        finally:
            here.leases.leave(id(attempts))

    def join(self, ticket: str, *, keep: bool = True, max_hold: Seconds | None = None) -> Lease:
        """Keep a lease alive together with the party that made the ticket with `share()`."""
        here = self._here()
        ticket = hidden(ticket)
        attempt, care, fence = here.requests.join(ticket, keep, max_hold)
        steps = enter_steps(here.observations, attempt, care, here.requests.answers_by(), fence)
        return here.enter(attempt, steps, "joined")

    def take(
        self, ticket: str, *, ttl: Seconds | None = None, owner: str | None = None,
        note: dict[str, Any] | None = None, keep: bool = True, max_hold: Seconds | None = None,
    ) -> Lease:  # fmt: skip
        """Become the holder of a lease that was handed over, with a new fence."""
        here = self._here()
        ticket = hidden(ticket)
        attempt = here.requests.take(ticket, owner, ttl, note)
        care = here.requests.care(keep, max_hold)
        steps = enter_steps(here.observations, attempt, care, here.requests.answers_by())
        return here.enter(attempt, steps, "taken")

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

        If the lock is taken, `busy` decides: `skip` returns None and `raise` raises `Busy`, at
        once or after `timeout`; `wait` waits. Other options are those of `acquire`.
        """
        return guard_with(lambda: self, key, busy, options)

    # --- look, evict, purge -----------------------------------------------------------------

    def show(self, key: str) -> LockInfo:
        """Returns who holds a lock and who waits for it."""
        here = self._here()
        key = here.requests.key(key)
        steps = show_steps(here.observations, key, here.requests.answers_by())
        return lock_info(here.driver.run(steps))

    def wait_until_free(self, key: str, timeout: Seconds | None = None) -> LockInfo:
        """Wait until nobody holds a lock, without acquiring it. Returns the lock as it was seen.

        Raises `AcquireTimeout`, which says who holds the lock, after `timeout` seconds; with a
        timeout of 0 it looks once and raises `Busy`. `show()` tells the holder's owner, note and
        age meanwhile. By the time this returns, somebody else may hold the lock again.
        """
        here = self._here()
        wait = here.requests.wait(key, timeout)
        try:
            return lock_info(here.driver.run(wait_until_free_steps(here.observations, wait)))
        except Busy as why:
            here.explain(why)
            raise

    def list(self, prefix: str = "", *, free: bool = False) -> Iterator[LockInfo]:
        """Yields the locks whose keys start with a prefix, page by page. With `free=True` also
        those that nobody holds or waits for."""
        here = self._here()
        prefix = check_prefix(prefix)
        cursor = None
        while True:
            here.check_usable()
            page = here.driver.run(list_steps(here.observations, prefix, cursor))
            for seen in page.locks:
                info = lock_info(seen)
                if free or info.waiters or not info.free:
                    yield info
            cursor = page.cursor
            if cursor is None:
                return

    def holders(self, prefix: str = "") -> Iterator[HolderInfo]:
        """Yields the holders of the locks whose keys start with a prefix, page by page."""
        for info in self.list(prefix):
            yield from info.holders

    @overload
    def evict(
        self, key: str, *, fence: int | None = None, reason: str = "",
        operator: str | None = None, waiters: Literal[False] = False,
    ) -> tuple[HolderInfo, ...]: ...  # fmt: skip
    @overload
    def evict(
        self, key: str, *, reason: str = "", operator: str | None = None, waiters: Literal[True],
    ) -> tuple[WaiterInfo, ...]: ...  # fmt: skip
    def evict(
        self, key: str, *, fence: int | None = None, reason: str = "",
        operator: str | None = None, waiters: bool = False,
    ) -> tuple[HolderInfo, ...] | tuple[WaiterInfo, ...]:  # fmt: skip
        """Evict the current holders, or only the one with `fence`. Returns those evicted.

        They learn of it at their next renewal, with the reason and the operator (by default the
        owner of this client); until then only the fence tells them from later holders.

        With `waiters=True`, remove the places of those who wait, and no holder: for a queue that is
        stuck. Those who are alive go on waiting, and take a new place at its end, unless their
        timeout is over within some seconds.
        """
        here = self._here()
        key = here.requests.key(key)
        check_fence(fence)
        if check_switch(waiters, "waiters"):
            return self._evict_waiters(here, key, reason, operator)
        by = here.requests.owner if operator is None else check_owner(operator, "operator")
        why = check_reason(reason)
        until = here.requests.answers_by()
        evicted = here.driver.run(evict_steps(here.observations, key, fence, until, by, why))
        here.leases.evicted(key, evicted.holders, by, why)
        return tuple(holder_info(key, holder, None, 0) for holder in evicted.holders)

    def _evict_waiters(
        self, here: FaceClient, key: str, reason: str, operator: str | None
    ) -> tuple[WaiterInfo, ...]:
        by = here.requests.owner if operator is None else check_owner(operator, "operator")
        why, until = check_reason(reason), here.requests.answers_by()
        steps = evict_waiters_steps(here.observations, key, until, by, why)
        evicted = here.driver.run(steps)
        here.leases.evicted(key, evicted, by, why)
        return tuple(waiter_info(key, waiter) for waiter in evicted)

    def purge(self, prefix: str = "", *, older_than: Seconds = 24 * 3600.0) -> int:
        """Drop the records of locks that nobody has used for a while. Returns how many."""
        here = self._here()
        prefix = check_prefix(prefix)
        retention = check_retention(older_than)
        page = Purged(0, None)
        while True:
            here.check_usable()
            steps = purge_steps(here.observations, prefix, page, retention)
            page = here.driver.run(steps)
            if page.cursor is None:
                return page.dropped

    # --- life -------------------------------------------------------------------------------

    def setup(self) -> None:
        """Create what the store needs. May be repeated."""
        here = self._here()
        here.check_usable()
        try:
            here.store.setup()
        except HoldfastError as trouble:
            without_frames(trouble)
            raise

    def close(self) -> None:
        """Close the client. Leases that are still held end for this client and are given back, as
        far as that takes less than two seconds. Leases that were shared, joined or acquired with
        `keep=False` stay until their ttl is over."""
        client = self._client  # of the parent, in a child that has not used it: nothing is open
        if not client.usable:
            client.close()
            return
        store = client.store
        giving_back = client.close()
        if giving_back is not None:
            _end(giving_back, store)

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _end(giving_back: GivingBack, store: Store) -> None:
    giving_back.wait()
    store.close()


def guard_with(
    locks: Callable[[], Locks], key: str, busy: OnBusy, options: dict[str, Any],
    instead: Callable[..., Any] = nothing,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Returns the decorator behind `guard`. It asks for the locks at each call. A call that is
    skipped returns what `instead` makes of its arguments."""
    passed_on = options_for(Locks.acquire, key, busy, options)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        guarded = Guarded(function, key, busy)
        _check_flavour(function)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            name = guarded.key(args, kwargs)
            try:
                lease = locks().acquire(name, **passed_on)
            except Busy as taken:
                if busy != "skip":
                    raise
                here = locks()._client
                owner = options.get("owner") or here.requests.owner
                here.leases.skipped(name, owner, guarded.name, taken)
                return instead(*args, **kwargs)
            with lease, Within(lease):
                outcome = function(*args, **kwargs)
                guarded.check_ran(outcome)
                return outcome

        return run

    return decorate


def _check_flavour(function: Callable[..., Any]) -> None:
    """Raise unless the function is of this face: async for asyncio, plain for the blocking one."""
    if inspect.iscoroutinefunction(function):
        raise UsageError("This is an async function: guard it with holdfast.aio's locks.")
