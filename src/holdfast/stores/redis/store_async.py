"""Locks in Redis or Valkey: each command is one script, and Redis's own clock decides.

The asyncio store has connections and a listener of its own on the event loop. It also keeps the
blocking store, from which renewals come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import Applied, Entry, Found, Page, Version
from holdfast.core.records import NEVER, SECOND, TOMBSTONE, Micros, Record
from holdfast.core.steps import corrupt
from holdfast.errors import ForeignStore
from holdfast.runtime.flavour import ASYNC
from holdfast.stores.base import Outcome
from holdfast.stores.redis import codec, record_text
from holdfast.stores.redis.codec import Corrupt, Encoder
from holdfast.stores.redis.listener_async import AsyncListener
from holdfast.stores.redis.notify import handle_for
from holdfast.stores.redis.resp import INFO, scan_from
from holdfast.stores.redis.setup import FACTS, REPLICATED, check_server
from holdfast.stores.redis.transport_async import AsyncTransport

if ASYNC:
    import asyncio

    from holdfast.stores.base import AsyncStore as _Base

    if TYPE_CHECKING:
        from holdfast.stores.redis.store import RedisStore
else:
    from collections.abc import Sequence

    from holdfast.core.effects import Apply
    from holdfast.errors import HoldfastError
    from holdfast.stores.redis import connect
    from holdfast.stores.redis.resp import wait_request
    from holdfast.stores.waiting.handles import Notify, WaitHandle
    from holdfast.stores.waiting.handles import NotifyingStore as _Base

    if TYPE_CHECKING:
        from holdfast.stores.url import StoreURL

_UNREADABLE = (Corrupt, ValueError, RecursionError)
if not ASYNC:
    NAMESPACE = "holdfast"
    # Connections of before a fork: closing one in the child could disturb the parent's.
    _abandoned: list[Any] = []


class AsyncRedisStore(_Base):
    """One server, a master with its Sentinels, or a cluster."""

    if ASYNC:
        of_one_loop = True

        def __init__(self, store: RedisStore) -> None:
            self._store = store
            self.facts = store.facts
            self.topology = store.topology
            self.names = store.names
            self.encoder = store.encoder
            self._transport = AsyncTransport(store.topology, store.wait_replicas)
            self._listener = AsyncListener(self.names, self._transport.connect, self._version)
    else:
        facts = FACTS

        def __init__(
            self,
            topology: connect.Topology,
            *,
            namespace: str = NAMESPACE,
            wait_replicas: int = 0,
            wait_s: float = 1.0,
            tombstone_s: float = TOMBSTONE / SECOND,
            fast_paths: bool = True,
        ) -> None:
            timeout_s = topology.settings.timeout_s
            connect.check_options(namespace, wait_replicas, wait_s, tombstone_s, timeout_s)
            self._options: dict[str, Any] = {
                "namespace": namespace,
                "wait_replicas": wait_replicas,
                "wait_s": wait_s,
                "tombstone_s": tombstone_s,
                "fast_paths": fast_paths,
            }
            self.facts = FACTS if topology.kind == "single" else REPLICATED
            self.topology = topology
            self.names = record_text.Names(namespace)
            self.wait_replicas = wait_replicas
            self.encoder = Encoder(
                self.names,
                round(tombstone_s * SECOND),
                topology.kind != "cluster",
                wait_request(wait_replicas, wait_s),
                fast_paths,
            )

            self._transport = AsyncTransport(topology, wait_replicas)
            self._listener = AsyncListener(self.names, self._transport.connect, self._version)

        @classmethod
        def from_url(cls, url: StoreURL, **options: Any) -> RedisStore:
            """See `connect` for the URLs."""
            topology = connect.topology_from_url(url, options)
            return cls(topology, **connect.store_options(options))

        @classmethod
        def from_object(cls, client: Any, **options: Any) -> RedisStore:
            """The store of a redis-py client: Redis or RedisCluster, blocking or asyncio.

            It has connections of its own, with the same address, login and timeouts.
            """
            return cls(connect.topology_from_client(client), **connect.store_options(options))

    # --- commands ---------------------------------------------------------------------------

    async def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        """Run a command in one script and one trip."""
        call = self.encoder.command(key, command, beat)
        try:
            return codec.applied(await self._transport.call(call, by), command, beat)
        except _UNREADABLE:
            raise corrupt(key, await self.load(key, by)) from None

    if not ASYNC:

        def apply_many(
            self, applies: Sequence[Apply], by: Micros = NEVER
        ) -> list[Applied | Exception]:
            """Run many commands, a script each, in one trip."""
            calls = [self.encoder.command(one.key, one.command, one.beat) for one in applies]
            replies = self._transport.call_many(calls, by)
            return [self._one_of_many(*one, by) for one in zip(applies, replies, strict=True)]

        def _one_of_many(self, one: Apply, reply: Any, by: Micros) -> Applied | Exception:
            if isinstance(reply, HoldfastError):
                return reply
            try:
                if isinstance(reply, Corrupt):
                    return corrupt(one.key, self.load(one.key, by))
                return codec.applied(reply, one.command, one.beat)
            except HoldfastError as trouble:
                return trouble
            except _UNREADABLE:
                return self._one_of_many(one, Corrupt(), by)

    # --- records ----------------------------------------------------------------------------

    async def load(self, key: str, by: Micros = NEVER) -> Entry:
        """A record and the clock, in one script."""
        return codec.loaded(await self._transport.call(self.encoder.load(key), by))

    async def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Compare and swap in one script."""
        call = self.encoder.swap(key, version, record, wake)
        return codec.swapped(await self._transport.call(call, by))

    async def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """A page of the index; in a cluster, of all keys of all masters."""
        if self.topology.kind != "cluster":
            call = self.encoder.scan(prefix, cursor, limit)
            return codec.page(await self._transport.call(call, by), limit)
        keys = await self._keys(prefix, cursor, by)
        entries = [(key, await self.load(key, by)) for key in keys[:limit]]
        present = tuple((key, entry) for key, entry in entries if entry.version is not None)
        return Page(present, keys[limit - 1] if len(keys) > limit else None)

    async def _keys(self, prefix: str, cursor: str | None, by: Micros = NEVER) -> list[str]:
        """Returns all keys after the cursor in their order. SCAN may show one twice."""
        found: set[str] = set()
        for server in await self._transport.servers(by):
            position = b"0"
            while True:
                request = scan_from(position, self.names.pattern(prefix))
                position, names = await self._transport.ask(server, request, by)
                found |= self.names.keys(names)
                if position == b"0":
                    break
        start = b"" if cursor is None else cursor.encode()
        return sorted((key for key in found if key.encode() > start), key=str.encode)

    async def _version(self, key: str) -> Version:
        return (await self.load(key)).version

    # --- waiting ----------------------------------------------------------------------------

    if ASYNC:

        async def wait(self, key: str, version: Version, token: str, at_most: Micros) -> Found:
            """Wait until the lock's channel says that it may be this token's turn."""
            loop = asyncio.get_running_loop()
            notified = asyncio.Event()
            timer = loop.call_later(at_most / SECOND, notified.set)
            handle = handle_for(key, version, token, notified.set)
            try:
                await self._listener.register_wait(handle)
                await notified.wait()
            finally:
                timer.cancel()
                self._listener.cancel_wait(handle)
            return handle.found
    else:

        def register_wait(
            self, key: str, version: Version, token: str, notify: Notify
        ) -> WaitHandle:
            """Notify when the lock's channel says so."""
            handle = handle_for(key, version, token, notify)
            self._listener.register_wait(handle)
            return handle

        def cancel_wait(self, handle: WaitHandle) -> None:
            """Notify no longer."""
            self._listener.cancel_wait(handle)

    # --- its life ---------------------------------------------------------------------------

    async def setup(self) -> None:
        """Check that the server will do, and enter records into the index that are not in it."""
        for server in await self._transport.servers():
            check_server(await self._transport.ask(server, INFO))
        if self.topology.kind == "cluster":
            return
        for key in await self._keys("", None):
            try:
                await self._transport.call(self.encoder.index_add(key))
            except ForeignStore:
                continue  # somebody else's, whatever it is called

    async def close(self) -> None:
        """Close all connections. Waiting calls return."""
        await self._listener.close()
        await self._transport.close()
        if ASYNC:
            self._store.close()

    if ASYNC:

        def moved(self) -> AsyncRedisStore:
            """Returns the same for another event loop, with connections of its own."""
            return AsyncRedisStore(self._store)
    else:

        def to_async(self) -> Any:
            """Returns the asyncio store, with connections of its own."""
            from holdfast.stores.redis import asyncio_store

            return asyncio_store(self)

        def abandon(self) -> None:
            """In a forked child: the connections are the parent's."""
            _abandoned.append((self._transport.forget(), self._listener.forget()))

        def for_child(self) -> RedisStore:
            """Returns a store with connections of its own."""
            return type(self)(self.topology, **self._options)
