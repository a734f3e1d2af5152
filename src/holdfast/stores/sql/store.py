"""The SQL store: single-statement compare-and-swap on one table.

All state is in rows. There is no advisory lock, no GET_LOCK and no open transaction, so a
client that dies leaves nothing locked, and any pooler may sit in between.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Page, Version
from holdfast.core.effects import Swap
from holdfast.core.records import Record
from holdfast.errors import BadOption, BadURL, Misconfigured
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.sql.batches import swap_many_queries
from holdfast.stores.sql.bell import Bell
from holdfast.stores.sql.database import Database
from holdfast.stores.sql.dialect import Query
from holdfast.stores.sql.engine import (
    DRIVERS,
    Options,
    asyncio_engine,
    blocking_engine,
    dialect_for,
    options_from,
    url_from,
)
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.waiting.handles import Notify, NotifyingStore, PollResult, WaitHandle, lets_in
from holdfast.stores.waiting.poller import Poller

if TYPE_CHECKING:
    from holdfast.stores.sql.aio import AsyncSQLStore
    from holdfast.stores.url import StoreURL


class SQLStore(NotifyingStore):
    """Locks in one table. `engine` is for threads and `async_engine` for an event loop."""

    def __init__(
        self,
        engine: Engine,
        options: Options,
        *,
        owned: bool = False,
        url: URL | None = None,
        async_engine: AsyncEngine | None = None,
    ) -> None:
        self.dialect = dialect_for(engine, options.table)
        self.options = options
        self.database = Database(engine, self.dialect, options, owned=owned)
        self._url = url
        self._async_engine = async_engine
        self._async_stores: weakref.WeakSet[AsyncSQLStore] = weakref.WeakSet()
        self._ready_lock = threading.Lock()
        self.ready = False  # the table was seen to be there
        self._poller = Poller(self._turns, lets_in)
        self._bell = self._make_bell(engine)
        self._waiting: Poller | Bell = self._bell or self._poller
        self.facts = replace(
            self.dialect.facts,
            wakeup="push" if self._bell else "poll",
            native_async=url is not None or async_engine is not None,
        )

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> SQLStore:
        """`postgresql://user:password@host/database?table=locks`, and so for mysql."""
        address, asked = url_from(url)
        if options:
            given = _as_given(asked)
            asked = options_from({**given, **options})
            _no_more(options, given)
        return cls(blocking_engine(address, asked), asked, owned=True, url=address)

    @classmethod
    def from_object(
        cls, engine: Engine | AsyncEngine, *, sync_engine: Engine | None = None, **options: Any
    ) -> SQLStore:
        """On an application's own engine, whose pool is shared and never closed from here.

        With an `AsyncEngine`, leases are still renewed by a thread, through a small pool of
        blocking connections to the same address; `sync_engine` brings one of your own.
        """
        given = dict(options)
        asked = options_from(given)
        _no_more(given, {})
        if isinstance(engine, AsyncEngine):
            if sync_engine is not None:
                return cls(sync_engine, asked, async_engine=engine)
            address = _plain(engine.url)
            small = replace(asked, pool_size=1) if "pool_size" not in options else asked
            own = blocking_engine(address, small)
            return cls(own, asked, owned=True, async_engine=engine)
        if not isinstance(engine, Engine):
            raise BadURL(
                f"Holdfast opens a store on an Engine or an AsyncEngine, not on a "
                f"{type(engine).__name__}."
            )
        return cls(engine, asked)

    # --- records ----------------------------------------------------------------------------

    def load(self, key: str) -> Entry:
        """One SELECT."""
        self._get_ready()
        return self.database.run(self.dialect.load_queries(key))

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """One INSERT, UPDATE or DELETE."""
        self._get_ready()
        outcome = self.database.run(self.dialect.swap_queries(key, version, record, wake))
        self.ring_here(key, wake)
        return outcome

    def swap_many(self, swaps: Sequence[Swap]) -> list[Outcome | Exception]:
        """One UPDATE for all renewals among them."""
        self._get_ready()
        outcomes = self.database.run(swap_many_queries(self.dialect, swaps))
        for swap in swaps:
            self.ring_here(swap.key, swap.wake)
        return outcomes

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """One SELECT on the primary key."""
        self._get_ready()
        return self.database.run(self.dialect.scan_queries(prefix, cursor, limit))

    # --- waiting ----------------------------------------------------------------------------

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Ring when a notification comes, or when a look finds a change."""
        handle = WaitHandle(key, version, token, notify)
        self._waiting.add(handle)
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer ring."""
        self._waiting.discard(handle)

    def ring_here(self, key: str, wake: Wake) -> None:
        """Those in this process who are polled for need not wait for the next look."""
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
            self.database.execute(Query("SELECT 1"))
        except Misconfigured as exc:
            raise Misconfigured(
                f"{exc} Leases are renewed in a thread, through blocking connections to the same "
                f"address: bring an engine for them, as in connect(engine, sync_engine=…)."
            ) from exc.__cause__

    def ddl(self) -> str:
        """The statements that `setup` would run, for an administrator."""
        return self.database.run(self.dialect.ddl_queries())

    def close(self) -> None:
        """Let go of our own connections; an application's engine is left as it is."""
        if self._bell is not None:
            self._bell.close()
        self._poller.close()
        for store in list(self._async_stores):
            store.hang_up()
        self.database.close()

    def to_async(self) -> AsyncStore:
        """A native one where there is an asyncio engine; else one over threads."""
        from holdfast.stores.sql.aio import AsyncSQLStore

        if self._async_engine is not None:
            store = AsyncSQLStore(self, self._async_engine, owned=False)
        elif self._url is not None:
            store = AsyncSQLStore(self, asyncio_engine(self._url, self.options), owned=True)
        else:
            return super().to_async()
        self._async_stores.add(store)
        return store

    def part_with(self, store: AsyncSQLStore) -> None:
        """It has hung up by itself."""
        self._async_stores.discard(store)

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self.database.abandon()

    def _make_bell(self, engine: Engine) -> Bell | None:
        if self.options.wakeup == "auto" and engine.dialect.driver == "psycopg":
            assert isinstance(self.dialect, PostgreSQLDialect)
            return Bell(self.database, self.dialect, self._poller)
        return None

    def _get_ready(self) -> None:
        if not self.ready:
            with self._ready_lock:
                if not self.ready:
                    self.database.run(self.dialect.ready_queries())
                    self.ready = True

    def _turns(self, keys: Any) -> dict[str, PollResult]:
        return self.database.run(self.dialect.turns_queries(keys))


def _as_given(options: Options) -> dict[str, Any]:
    return {
        "table": options.table.name,
        "schema": options.table.schema,
        "wakeup": options.wakeup,
        "pool_size": options.pool_size,
        "timeout_s": options.timeout_s,
    }


def _no_more(given: dict[str, Any], known: dict[str, Any]) -> None:
    unknown = given.keys() - known.keys()
    if unknown:
        raise BadOption(f"An SQL store has no option {', '.join(sorted(unknown))}.")


def _plain(url: URL) -> URL:
    """The address for the blocking driver of the same database."""
    family = url.get_backend_name()
    if family not in DRIVERS:
        raise BadURL(f"Holdfast keeps no locks in {family} through SQLAlchemy.")
    return url.set(drivername=family)
