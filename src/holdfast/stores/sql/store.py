"""The SQL store: single-statement compare-and-swap on one table.

All state is in rows. There is no advisory lock, no GET_LOCK and no open transaction, so a
client that dies leaves nothing locked, and any pooler may sit in between.

`SQLStore` is for threads. `AsyncSQLStore` runs the same queries on connections of an event loop,
and shares the rest with the blocking store beside it: one thread that listens or polls wakes tasks
as well as threads.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from sqlalchemy import URL, Engine

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Page, Version
from holdfast.core.effects import Swap
from holdfast.core.records import Micros, Record
from holdfast.errors import BadURL, Misconfigured
from holdfast.stores.async_adapters import finish, wait_for_notify
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.sql import connect
from holdfast.stores.sql.batches import swap_many_queries
from holdfast.stores.sql.engine_pool import EnginePool
from holdfast.stores.sql.notify import NotifyListener
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.sql.protocol import Dialect, Queries, Query
from holdfast.stores.sql.setup import ddl_queries, ready_queries
from holdfast.stores.sql.transport import Transport
from holdfast.stores.waiting.handles import Notify, NotifyingStore, PollResult, WaitHandle, lets_in
from holdfast.stores.waiting.poller import Poller

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from holdfast.stores.sql.transport_async import Transport as AsyncTransport
    from holdfast.stores.url import StoreURL

R = TypeVar("R")


class SQLStore(NotifyingStore):
    """Locks in one table. `engine` or `async_engine` is an application's; without the one for
    threads, connections to `url` are opened here."""

    def __init__(
        self,
        options: connect.Options,
        *,
        url: URL,
        engine: Engine | None = None,
        async_engine: AsyncEngine | None = None,
    ) -> None:
        self.options = options
        self.dialect = connect.dialect_for(url.get_backend_name(), options.table)
        self.transport = Transport(connect.place_of(url), self.dialect.diagnosis, options.timeout_s)
        if engine is None:
            arguments = connect.arguments_for(url, options, blocking=True)
            self.transport.open_own(url.get_backend_name(), arguments, options.pool_size)
        else:
            self.transport.use(EnginePool(engine))
        self._url = url
        self._engine = engine
        self._async_engine = async_engine
        self._async_stores: weakref.WeakSet[AsyncSQLStore] = weakref.WeakSet()
        self._ready_lock = threading.Lock()
        self.ready = False  # the table was seen to be there
        self._poller = Poller(self._poll, lets_in)
        self._listener = self._make_listener()
        self._waiting: Poller | NotifyListener = self._listener or self._poller
        self.facts = replace(
            self.dialect.facts,
            wakeup="push" if self._listener else "poll",
            native_async=engine is None or async_engine is not None,
        )

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> SQLStore:
        """`postgresql://user:password@host/database?table=locks`, and so for mysql."""
        address, asked = connect.url_and_options(url, options)
        return cls(asked, url=address)

    @classmethod
    def from_object(
        cls, engine: Engine | AsyncEngine, *, sync_engine: Engine | None = None, **options: Any
    ) -> SQLStore:
        """On an application's own engine, whose pool is shared and never closed from here.

        With an `AsyncEngine`, leases are still renewed by a thread, through a small pool of
        blocking connections to the same address; `sync_engine` brings one of your own.
        """
        from sqlalchemy.ext.asyncio import AsyncEngine

        asked = connect.options_of(options)
        if isinstance(engine, AsyncEngine):
            if sync_engine is not None:
                return cls(asked, url=sync_engine.url, engine=sync_engine, async_engine=engine)
            small = asked if "pool_size" in options else replace(asked, pool_size=1)
            return cls(small, url=_plain(engine.url), async_engine=engine)
        if not isinstance(engine, Engine):
            raise BadURL(
                f"Holdfast opens a store on an Engine or an AsyncEngine, not on a "
                f"{type(engine).__name__}."
            )
        return cls(asked, url=engine.url, engine=engine)

    # --- records ----------------------------------------------------------------------------

    def load(self, key: str) -> Entry:
        """One SELECT."""
        return self._run(self.dialect.load_queries(key))

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """One INSERT, UPDATE or DELETE."""
        outcome = self._run(self.dialect.swap_queries(Swap(key, version, record, wake)))
        self.notify_here(key, wake)
        return outcome

    def swap_many(self, swaps: Sequence[Swap]) -> list[Outcome | Exception]:
        """One UPDATE for all renewals among them."""
        outcomes = self._run(swap_many_queries(self.dialect, swaps))
        for swap in swaps:
            self.notify_here(swap.key, swap.wake)
        return outcomes

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """One SELECT on the primary key."""
        return self._run(self.dialect.scan_queries(prefix, cursor, limit))

    # --- waiting ----------------------------------------------------------------------------

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Notify when a notification comes, or when a look finds a change."""
        handle = WaitHandle(key, version, token, notify)
        self._waiting.add(handle)
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """Stop notifying."""
        self._waiting.discard(handle)

    def notify_here(self, key: str, wake: Wake) -> None:
        """Wake those in this process who are polled for: they need not wait for the next look."""
        self._poller.handles.notify(key, wake)

    # --- its life ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Create the table unless it is there; refuse what is not ours."""
        self.ready = False
        self._get_ready()

    def check_renewals(self) -> None:
        """Before a lease is granted through an application's `AsyncEngine`: could it be renewed?
        Its URL may have options of another driver in it, or not all that it takes to connect."""
        try:
            self.transport.execute(Query("SELECT 1"))
        except Misconfigured as exc:
            raise Misconfigured(
                f"{exc} Leases are renewed in a thread, through blocking connections to the same "
                f"address: bring an engine for them, as in connect(engine, sync_engine=…)."
            ) from exc.__cause__

    def ddl(self) -> str:
        """The statements that `setup` would run, for an administrator."""
        return self.transport.run(ddl_queries(self.dialect))

    def close(self) -> None:
        """Let go of our own connections; an application's engine is left as it is."""
        if self._listener is not None:
            self._listener.close()
        self._poller.close()
        for store in list(self._async_stores):
            store.hang_up()
        self.transport.close()

    def to_async(self) -> AsyncStore:
        """Returns a native one where there are asyncio connections; else one over threads."""
        if self._engine is not None and self._async_engine is None:
            return super().to_async()
        store = AsyncSQLStore(self, *self._async_transport())
        self._async_stores.add(store)
        return store

    def part_with(self, store: AsyncSQLStore) -> None:
        """Forget a store for an event loop that has closed by itself."""
        self._async_stores.discard(store)

    def abandon(self) -> None:
        """In a forked child: leave the connections alone, which are the parent's."""
        self.transport.abandon()
        for store in list(self._async_stores):
            store.abandon()

    def _async_transport(self) -> tuple[AsyncTransport, Callable[[], None]]:
        """Returns a transport for one event loop, and what closes its connections without it."""
        from holdfast.stores.sql.engine_pool_async import EnginePool as AsyncEnginePool
        from holdfast.stores.sql.transport_async import Transport as AsyncTransport

        options, place = self.options, self.transport.place
        transport = AsyncTransport(place, self.dialect.diagnosis, options.timeout_s)
        if self._async_engine is not None:
            transport.use(AsyncEnginePool(self._async_engine))
            return transport, _nothing
        arguments = connect.arguments_for(self._url, options, blocking=False)
        pool = transport.open_own(self._url.get_backend_name(), arguments, options.pool_size)
        return transport, pool.hang_up

    def _make_listener(self) -> NotifyListener | None:
        pushes = isinstance(self.dialect, PostgreSQLDialect) and self.options.wakeup == "auto"
        if not pushes or (self._engine is not None and self._engine.dialect.driver != "psycopg"):
            return None
        return NotifyListener(self.transport, self.dialect, self._poller)

    def _run(self, queries: Queries[R]) -> R:
        self._get_ready()
        return self.transport.run(queries)

    def _get_ready(self) -> None:
        if not self.ready:
            with self._ready_lock:
                if not self.ready:
                    self.transport.run(ready_queries(self.dialect))
                    self.ready = True

    def _poll(self, keys: Sequence[str]) -> dict[str, PollResult]:
        return self.transport.run(self.dialect.turns_queries(keys))


class AsyncSQLStore(AsyncStore):
    """Runs the same queries on connections of an event loop."""

    of_one_loop = True

    def __init__(
        self, store: SQLStore, transport: AsyncTransport, hang_up: Callable[[], None]
    ) -> None:
        self.facts = store.facts
        self._store = store
        self._dialect: Dialect = store.dialect
        self._transport = transport
        self._ready_lock = asyncio.Lock()
        # This also runs when nobody has closed the store and it is collected, or the program ends.
        self._hang_up = weakref.finalize(self, hang_up)

    async def load(self, key: str) -> Entry:
        return await self._run(self._dialect.load_queries(key))

    async def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        outcome = await self._run(self._dialect.swap_queries(Swap(key, version, record, wake)))
        self._store.notify_here(key, wake)
        return outcome

    async def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        return await self._run(self._dialect.scan_queries(prefix, cursor, limit))

    async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Entry | None:
        return await wait_for_notify(self._store, key, version, token, at_most)

    async def setup(self) -> None:
        self._store.ready = False
        await finish(self._get_ready())

    async def close(self) -> None:
        await self._transport.close()
        self.hang_up()  # here: nobody may touch a loop's connections from another thread
        self._store.part_with(self)
        await asyncio.to_thread(self._store.close)

    def moved(self) -> AsyncStore:
        self.hang_up()
        return self._store.to_async()

    def hang_up(self) -> None:
        """Close the connections that the event loop did not close; it may be gone by now."""
        self._transport.end()
        self._hang_up()

    def abandon(self) -> None:
        """In a forked child: leave the connections alone, which are the parent's."""
        self._transport.abandon()

    async def _run(self, queries: Queries[R]) -> R:
        """A cancelled call goes on until it is done, so that whoever undoes it comes after."""
        return await finish(self._ready_and_run(queries))

    async def _ready_and_run(self, queries: Queries[R]) -> R:
        if not self._store.ready:
            await self._get_ready()
        return await self._transport.run(queries)

    async def _get_ready(self) -> None:
        async with self._ready_lock:
            if not self._store.ready:
                if self._transport.borrows:
                    await asyncio.to_thread(self._store.check_renewals)
                await self._transport.run(ready_queries(self._dialect))
                self._store.ready = True


def _nothing() -> None:
    """An application closes its own connections."""


def _plain(url: URL) -> URL:
    """The address for the blocking driver of the same database."""
    family = url.get_backend_name()
    if family not in connect.DRIVERS:
        raise BadURL(f"Holdfast keeps no locks in {family} through SQLAlchemy.")
    return url.set(drivername=family)
