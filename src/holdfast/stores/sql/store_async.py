"""The SQL store: single-statement compare-and-swap on one table.

All state is in rows. There is no advisory lock, no GET_LOCK and no open transaction, so a
client that dies leaves nothing locked, and any pooler may sit in between.

The asyncio store runs the same queries on connections of an event loop. It also keeps the blocking
store, from which renewals come: one thread that listens or polls wakes tasks as well as threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Amended, Change, Entry, Found, Page, Swapped, Version
from holdfast.core.effects import Swap
from holdfast.core.records import NEVER, SECOND, Micros, Record
from holdfast.runtime.flavour import ASYNC
from holdfast.stores.base import Outcome
from holdfast.stores.sql.protocol import Queries
from holdfast.stores.sql.setup import ready_queries
from holdfast.stores.sql.transport_async import Transport

if ASYNC:
    import weakref

    from holdfast.runtime.beside import in_thread
    from holdfast.stores.async_adapters import finish, wait_for_notify
    from holdfast.stores.base import AsyncStore as _Base

    if TYPE_CHECKING:
        from holdfast.stores.sql.store import SQLStore
else:
    import weakref
    from collections.abc import Callable, Sequence

    from msgspec.structs import replace

    from holdfast.errors import BadURL, Misconfigured
    from holdfast.stores import spin
    from holdfast.stores.sql import connect
    from holdfast.stores.sql.batches import swap_many_queries
    from holdfast.stores.sql.notify import NotifyListener
    from holdfast.stores.sql.postgres import PostgreSQLDialect
    from holdfast.stores.sql.protocol import Query
    from holdfast.stores.sql.setup import ddl_queries
    from holdfast.stores.waiting.handles import Notify, PollResult, WaitHandle
    from holdfast.stores.waiting.handles import NotifyingStore as _Base
    from holdfast.stores.waiting.local_poller import Intervals, LocalPoller
    from holdfast.stores.waiting.local_wakeups import (
        interrupt,
        open_socket,
        wait_for_wake,
        waits_here,
    )

    if TYPE_CHECKING:
        from sqlalchemy import Engine

        from holdfast.stores.url import StoreURL

R = TypeVar("R")

if not ASYNC:
    # On the same machine, and where notifications arrive, nobody depends on polls.
    INTERVALS = Intervals(
        first_s=0.004, fastest_s=0.005, slowest_s=1.0, a_place_s=0.25, slowing=1.1
    )

    class Looker:
        """Looks at keys on behalf of those who wait for them, over the store's connections."""

        def __init__(self, look: Callable[[Sequence[str]], dict[str, PollResult]]) -> None:
            self.look = look

        def pause(self) -> None:
            """There is nothing to close before a fork: the child has a store of its own."""

        def close(self) -> None:
            """The connections are the store's."""


class AsyncSQLStore(_Base):
    """Locks in one table of PostgreSQL, MySQL or MariaDB."""

    if ASYNC:
        of_one_loop = True

        def __init__(self, store: SQLStore) -> None:
            self.facts = store.facts
            self.dialect = store.dialect
            self.poller = store.poller
            self.transport = Transport(store.url, store.dialect, store.options, store.async_engine)
            self._store = store
            # This also runs when nobody has closed the store and it is collected, or at exit.
            self.hang_up = weakref.finalize(self, self.transport.hang_up)
    else:

        def __init__(
            self,
            options: connect.Options,
            *,
            url: connect.AnyURL,
            engine: Engine | None = None,
            async_engine: Any = None,
        ) -> None:
            """`engine` and `async_engine`, an `AsyncEngine`, are an application's; without the
            first, connections to `url` are opened here."""
            self.options = options
            self.url = url
            self.engine = engine
            self.async_engine = async_engine
            self.dialect = connect.dialect_for(url.get_backend_name(), options.table)
            self.transport = Transport(url, self.dialect, options, engine)
            self._async_stores: weakref.WeakSet[Any] = weakref.WeakSet()
            self.poller = LocalPoller(Looker(self._poll), INTERVALS)
            self._listener: NotifyListener | None = None
            pushes = engine is None or engine.dialect.driver == "psycopg"
            if isinstance(self.dialect, PostgreSQLDialect) and options.wakeup == "auto" and pushes:
                self._listener = NotifyListener(self.transport, self.dialect, self.poller)
            self._waiting: LocalPoller | NotifyListener = self._listener or self.poller
            self.facts = replace(
                self.dialect.facts,
                wakeup="push" if self._listener else "poll",
                native_async=engine is None or async_engine is not None,
                amends=self.dialect.facts.amends and engine is None and async_engine is None,
            )

        @classmethod
        def from_url(cls, url: StoreURL, **options: Any) -> SQLStore:
            """`postgresql://user:password@host/database?table=locks`, and so for mysql."""
            address, asked = connect.url_and_options(url, options)
            return cls(asked, url=address)

        @classmethod
        def from_object(
            cls, engine: Any, *, sync_engine: Engine | None = None, **options: Any
        ) -> SQLStore:
            """On an application's own engine, whose pool is shared and never closed from here.

            With an `AsyncEngine`, leases are still renewed by a thread, through a small pool of
            blocking connections to the same address; `sync_engine` brings one of your own.
            """
            from sqlalchemy import Engine

            asked = connect.options_of(options)
            if isinstance(engine, Engine):
                return cls(asked, url=engine.url, engine=engine)
            if not hasattr(engine, "sync_engine"):
                raise BadURL(
                    f"Holdfast opens a store on an Engine or an AsyncEngine, not on a "
                    f"{type(engine).__name__}."
                )
            if sync_engine is not None:
                return cls(asked, url=sync_engine.url, engine=sync_engine, async_engine=engine)
            small = asked if "pool_size" in options else replace(asked, pool_size=1)
            return cls(small, url=connect.plain(engine.url), async_engine=engine)

    # --- records ----------------------------------------------------------------------------
    # A cancelled call goes on for a moment. So its clean-up comes after it, and a write that was
    # done all the same wakes those whom it lets in.

    async def load(self, key: str, by: Micros = NEVER) -> Entry:
        """One SELECT."""
        return await self._run(self.dialect.load_queries(key), by)

    async def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """One INSERT, UPDATE or DELETE."""
        swap = Swap(key, version, record, wake)
        if ASYNC:
            return await finish(self._swap(swap, by))
        else:
            return self._swap(swap, by)

    async def _swap(self, swap: Swap, by: Micros) -> Outcome:
        outcome = await self._ready_and_run(self.dialect.swap_queries(swap), by)
        if swap.wake:  # calls that wait on this machine need not wait for the next look
            written = swap.record if isinstance(outcome, Swapped) else None
            self.poller.notify(swap.key, swap.wake, written)
        return outcome

    async def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """One SELECT and one UPDATE; if others were faster, twice, in a transaction of two trips
        which holds the record still."""
        if ASYNC:
            return await finish(self._amend(key, change, by))
        else:
            return self._amend(key, change, by)

    async def _amend(self, key: str, change: Change, by: Micros) -> Amended:
        amended = await self._ready_and_run(self.dialect.amend_queries(key, change), by)
        if amended is None:
            queries = partial(self.dialect.amend_held_queries, key, change)
            amended = await self.transport.transact(queries, by)
        self.poller.notify(key, amended.decision.wake, amended.decision.record)
        return amended

    async def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """One SELECT on the primary key."""
        return await self._run(self.dialect.scan_queries(prefix, cursor, limit), by)

    async def _run(self, queries: Queries[R], by: Micros) -> R:
        if ASYNC:
            return await finish(self._ready_and_run(queries, by))
        else:
            return self._ready_and_run(queries, by)

    async def _ready_and_run(self, queries: Queries[R], by: Micros) -> R:
        if not self.dialect.ready:
            await self._get_ready(by)
        return await self.transport.run(queries, by)

    async def _get_ready(self, by: Micros = NEVER) -> None:
        # Several may do this at once; nobody waits for another one's answer.
        if ASYNC and self._store.async_engine is not None:
            await in_thread(partial(self._store.check_renewals, by))
        await self.transport.run(ready_queries(self.dialect), by)
        self.dialect.ready = True

    if not ASYNC:

        def swap_many(self, swaps: Sequence[Swap], by: Micros = NEVER) -> list[Outcome | Exception]:
            """One UPDATE for all renewals among them."""
            outcomes = self._run(swap_many_queries(self.dialect, swaps), by)
            for swap in swaps:
                self.poller.notify(swap.key, swap.wake)
            return outcomes

    # --- waiting ----------------------------------------------------------------------------

    if ASYNC:

        async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
            return await wait_for_notify(self._store, key, version, token, at_most)
    else:

        def register_wait(
            self, key: str, version: Version, token: str, notify: Notify
        ) -> WaitHandle:
            """Notify when a notification comes, or when a look finds a change."""
            handle = WaitHandle(key, version, token, notify)
            self._waiting.add(handle)
            return handle

        def cancel_wait(self, handle: WaitHandle) -> None:
            """Stop notifying."""
            self._waiting.discard(handle)

        def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
            """Block until the key may have changed for this token, or for a time."""
            opened = open_socket(token)
            if opened is None:
                return super().wait(key, version, token, at_most)
            handle = WaitHandle(key, version, token, partial(interrupt, opened))
            try:
                with opened:
                    self._waiting.add(handle, opened)
                    brought = wait_for_wake(opened, token, at_most / SECOND)
            finally:
                self._waiting.discard(handle)
                spin.rest()
            return brought or handle.found

        def awaits(self, token: str) -> bool:
            """Whether a call waits with this token on this machine. It has a socket until it ends,
            or its process does."""
            return waits_here(token)

        def _poll(self, keys: Sequence[str]) -> dict[str, PollResult]:
            return self.transport.run(self.dialect.turns_queries(keys))

    # --- its life ---------------------------------------------------------------------------

    async def setup(self) -> None:
        """Create the table unless it is there; refuse what is not ours."""
        self.dialect.ready = False
        await self._get_ready()

    async def close(self) -> None:
        """Let go of our own connections; an application's engine is left as it is."""
        if ASYNC:
            await self.transport.close()
            self.hang_up()  # here: nobody may touch a loop's connections from another thread
            await in_thread(self._store.close)
        else:
            if self._listener is not None:
                self._listener.close()
            self.poller.close()
            for store in list(self._async_stores):
                store.hang_up()
            self.transport.close()

    def abandon(self) -> None:
        """In a forked child: leave the connections alone, which are the parent's."""
        self.transport.abandon()
        if not ASYNC:
            for store in list(self._async_stores):
                store.abandon()

    if ASYNC:

        def moved(self) -> Any:
            """Returns the same for another event loop, with connections of its own."""
            self.hang_up()
            return self._store.to_async()
    else:

        def ddl(self) -> str:
            """The statements that `setup` would run, for an administrator."""
            return self.transport.run(ddl_queries(self.dialect))

        def to_async(self) -> Any:
            """Returns the asyncio store: a native one where there are asyncio connections, else one
            over threads."""
            if not self.facts.native_async:
                return super().to_async()
            from holdfast.stores.sql import asyncio_store

            store = asyncio_store(self)
            self._async_stores.add(store)
            return store

        def for_child(self) -> SQLStore:
            """Returns the same store with nothing open, for a forked child."""
            mine, of_loops = self.engine, self.async_engine
            for engine in (mine, of_loops and of_loops.sync_engine):
                if engine is not None:
                    engine.dispose(close=False)
            return type(self)(self.options, url=self.url, engine=mine, async_engine=of_loops)

        def check_renewals(self, by: Micros) -> None:
            """Before a lease is granted through an application's `AsyncEngine`: could it be
            renewed? Its URL may have options of another driver in it, or lack some."""
            try:
                self.transport.execute(Query("SELECT 1"), by)
            except Misconfigured as exc:
                raise Misconfigured(
                    f"{exc} Leases are renewed in a thread, through blocking connections to the "
                    f"same address: bring an engine for them, as in connect(engine, sync_engine=…)."
                ) from exc.__cause__
