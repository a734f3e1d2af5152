"""Locks in Redis or Valkey: each command is one script, and Redis's own clock decides."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import Applied, Entry, Facts, Page, Version
from holdfast.core.effects import Apply
from holdfast.core.listing import SHORTEST_RETENTION
from holdfast.core.records import SECOND, TOMBSTONE, Micros, Record
from holdfast.core.steps import corrupt
from holdfast.errors import BadOption, BadURL, ForeignStore, HoldfastError, Misconfigured
from holdfast.stores import spin
from holdfast.stores.base import AsyncStore, Outcome
from holdfast.stores.redis import layout, talk
from holdfast.stores.redis.connect import Site, site_from_client, site_from_url
from holdfast.stores.redis.errors import OLDEST
from holdfast.stores.redis.listen import Listener, handle_for
from holdfast.stores.redis.routing import Question
from holdfast.stores.redis.talk import Corrupt, Speaker
from holdfast.stores.redis.wire import Wire
from holdfast.stores.redis.words import INFO, TIME, pack, scan_from, start_of
from holdfast.stores.waiting.handles import Notify, NotifyingStore, WaitHandle

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

logger = logging.getLogger("holdfast")

NAMESPACE = "holdfast"

FACTS = Facts(
    name="redis",
    linearizable=True,
    clock="store",
    reach="network",
    wakeup="push",
    durable=False,
    native_async=True,
    scripted=True,
    batch=256,
    caveats=(
        "A restart forgets what Redis had not yet saved: see appendonly and appendfsync.",
        "maxmemory-policy must be noeviction, or Redis may drop a lock that is held.",
        "Its clock is the machine's time of day: a step forward ends leases early.",
    ),
)
REPLICATED = replace(
    FACTS,
    linearizable=False,
    caveats=(
        "Replication is asynchronous: a failover can forget a grant that was acknowledged, and "
        "then two parties hold; the fence tells them apart. wait_replicas narrows the gap.",
        *FACTS.caveats,
    ),
)

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class RedisStore(NotifyingStore):
    """One server, a master with its Sentinels, or a cluster."""

    facts = FACTS

    def __init__(
        self,
        site: Site,
        *,
        namespace: str = NAMESPACE,
        wait_replicas: int = 0,
        wait_s: float = 1.0,
        tombstone_s: float = TOMBSTONE / SECOND,
    ) -> None:
        _check_options(namespace, wait_replicas, wait_s, tombstone_s, site.settings.timeout_s)
        self.facts = FACTS if site.kind == "single" else REPLICATED
        self.site = site
        self.names = layout.Names(namespace)
        self.wait_replicas = wait_replicas
        self.speaker = Speaker(
            self.names,
            round(tombstone_s * SECOND),
            site.kind != "cluster",
            _wait_request(wait_replicas, wait_s),
        )
        self._wire = Wire(site, wait_replicas)
        self._listener = Listener(self.names, self._wire.connect, self._version)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> RedisStore:
        """See `connect` for the URLs."""
        site = site_from_url(url, options)
        return cls(site, **_own_options(options))

    @classmethod
    def from_object(cls, client: Any, **options: Any) -> RedisStore:
        """The store of a redis-py client: Redis or RedisCluster, blocking or asyncio.

        It has connections of its own, with the same address, login and timeouts.
        """
        return cls(site_from_client(client), **_own_options(options))

    # --- commands ---------------------------------------------------------------------------

    def apply(self, key: str, command: Command, beat: str) -> Applied:
        """One script, one trip."""
        try:
            reply = self._wire.call(self.speaker.command(key, command, beat))
            return talk.applied(reply, command, beat)
        except (Corrupt, ValueError, RecursionError):
            raise self._corrupt(key) from None

    def apply_many(self, applies: Sequence[Apply]) -> list[Applied | Exception]:
        """Many scripts in one trip."""
        calls = [self.speaker.command(one.key, one.command, one.beat) for one in applies]
        answers: list[Applied | Exception] = []
        for one, reply in zip(applies, self._wire.call_many(calls), strict=True):
            answers.append(self._one_of_many(one, reply))
        return answers

    def _one_of_many(self, one: Apply, reply: Any) -> Applied | Exception:
        if isinstance(reply, HoldfastError):
            return reply
        try:
            if isinstance(reply, Corrupt):
                return self._corrupt(one.key)
            return talk.applied(reply, one.command, one.beat)
        except (Corrupt, ValueError, RecursionError):
            return self._corrupt(one.key)

    def _corrupt(self, key: str) -> HoldfastError:
        try:
            return corrupt(key, self.load(key))
        except HoldfastError as trouble:
            return trouble

    # --- records ----------------------------------------------------------------------------

    def load(self, key: str) -> Entry:
        """TIME, then GET, in one trip: a party that is dead by that time was so in the record."""
        name = self.names.record(key)
        time, raw = self._wire.ask(Question(name, pack(b"GET", name), TIME))
        return layout.read(raw, talk.clock(time))

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """One script."""
        return talk.swapped(self._wire.call(self.speaker.swap(key, version, record, wake)))

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """A page of the index; in a cluster, of all keys of all masters."""
        if self.site.kind != "cluster":
            return talk.page(self._wire.call(self.speaker.scan(prefix, cursor, limit)), limit)
        keys = self._keys(prefix, cursor)
        entries = [(key, self.load(key)) for key in keys[:limit]]
        present = tuple((key, entry) for key, entry in entries if entry.version is not None)
        return Page(present, keys[limit - 1] if len(keys) > limit else None)

    def _keys(self, prefix: str, cursor: str | None) -> list[str]:
        """All keys after the cursor, in order. SCAN may show one twice."""
        found: set[str] = set()
        for master, _ in self._wire.ask_all(TIME):
            position = b"0"
            while True:
                request = scan_from(position, self.names.pattern(prefix))
                position, names = self._wire.ask_at(master, request)
                found |= self.names.keys(names)
                if position == b"0":
                    break
        return in_order(found, cursor)

    # --- waiting ----------------------------------------------------------------------------

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Ring when the lock's channel says so."""
        handle = handle_for(key, version, token, notify)
        self._listener.register_wait(handle)
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer ring."""
        self._listener.cancel_wait(handle)

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> None:
        """Sleep until it does, and listen meanwhile."""
        try:
            self._listener.wait(key, version, token, at_most / SECOND)
        finally:
            spin.rest()

    def _version(self, key: str) -> Version:
        name = self.names.record(key)
        (start,) = self._wire.ask(Question(name, start_of(name)))
        return layout.version_of(start) if start else None

    # --- its life ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Check that the server will do, and enter records into the index that are not in it."""
        for _, info in self._wire.ask_all(INFO):
            check_server(info)
        if self.site.kind == "cluster":
            return
        for key in self._keys("", None):
            with suppress(ForeignStore):  # somebody else's, whatever it is called
                self._wire.call(self.speaker.enter(key))

    def close(self) -> None:
        """Hang up. Waiting calls return."""
        self._listener.close()
        self._wire.close()

    def to_async(self) -> AsyncStore:
        """The asyncio face, with connections of its own."""
        from holdfast.stores.redis.aio import AsyncRedisStore

        return AsyncRedisStore(self)

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        _abandoned.append((self._wire.forget(), self._listener.forget()))


# --- options --------------------------------------------------------------------------------

_OPTIONS = {"namespace": str, "wait_replicas": int, "wait_s": float, "tombstone_s": float}


def _own_options(options: dict[str, Any]) -> dict[str, Any]:
    unknown = options.keys() - _OPTIONS.keys()
    if unknown:
        raise BadURL(f"The redis store has no option {', '.join(sorted(unknown))}.")
    try:
        return {name: _OPTIONS[name](value) for name, value in options.items()}
    except (TypeError, ValueError):
        raise BadOption("wait_replicas, wait_s and tombstone_s are numbers.") from None


def _check_options(
    namespace: str, replicas: int, wait_s: float, tombstone_s: float, timeout_s: float
) -> None:
    if not namespace or re.search(r"[{}\s]", namespace):
        raise BadOption("namespace is what all keys start with: no braces, no blanks.")
    if replicas < 0:
        raise BadOption("wait_replicas is how many replicas must confirm a grant: 0 or more.")
    if replicas and not 0 < wait_s < timeout_s:
        raise BadOption(f"wait_s is above 0 and below socket_timeout ({timeout_s:g} s).")
    if tombstone_s * SECOND < SHORTEST_RETENTION:
        raise BadOption(f"tombstone_s is at least {SHORTEST_RETENTION / SECOND:g} s.")


def _wait_request(replicas: int, wait_s: float) -> bytes:
    if not replicas:
        return b""
    return pack(b"WAIT", replicas, max(1, round(wait_s * 1000)))


# --- helpers --------------------------------------------------------------------------------


def in_order(keys: set[str], cursor: str | None) -> list[str]:
    """The keys after the cursor, in the order of their bytes."""
    start = b"" if cursor is None else cursor.encode()
    return sorted((key for key in keys if key.encode() > start), key=str.encode)


def check_server(info: bytes) -> None:
    """Refuse a server that is too old; warn of one that may drop locks."""
    facts = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    version = facts.get(b"redis_version", b"").decode()
    if version and _parts(version) < _parts(OLDEST):
        raise Misconfigured(f"This Redis is {version}: Holdfast needs {OLDEST} or later.")
    policy = facts.get(b"maxmemory_policy", b"noeviction").decode()
    if policy != "noeviction" and facts.get(b"maxmemory") != b"0":
        logger.warning(
            "This Redis drops keys when memory is short (maxmemory-policy %s), held locks too: "
            "set it to noeviction",
            policy,
        )


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:2]]
