"""A driver for tooz: OpenStack-style programs move to Holdfast's locks by a URL.

    coordinator = coordination.get_coordinator("holdfast:redis://cache:6379/3", b"host-1")
    coordinator.start()
    with coordinator.get_lock(b"volume-7"):
        ...

After `holdfast:` stands any URL that `holdfast.connect()` takes. Nothing after it means
$HOLDFAST_URL, or the embedded store. Locks, shared locks and the election of a leader are here;
groups of members are not: those calls raise tooz's `NotImplemented`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote_from_bytes, unquote_plus, unquote_to_bytes

import holdfast
from holdfast.api.locks import Locks
from holdfast.api.store_source import DEFAULT, StoreSource
from holdfast.core.contract import Facts
from holdfast.core.discreet import hidden
from holdfast.errors import Busy, HoldfastError, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.extras import needed
from holdfast.integrations.held import HeldLeases

with needed("holdfast.integrations.tooz", "tooz"):
    import tooz
    from tooz import coordination, locking, utils
    from tooz.coordination import Characteristics

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["HoldfastDriver", "HoldfastLock"]

# Options of the driver in the URL's query, or for `get_coordinator()`; others are the store's.
OPTIONS: dict[str, Callable[[Any], Any]] = {
    "namespace": str,
    "ttl": float,
    "request_timeout": float,
    "store_patience": float,
}
DEFAULT_NAMESPACE = "tooz:"
# What may stand in a key as it is. The rest is written %XX, so that every name has its own key.
READABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def _tooz_errors(call: Callable[P, R]) -> Callable[P, R]:
    """Raises tooz's errors instead of ours, which stay their cause."""

    @functools.wraps(call)
    def translated(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except (Unavailable, OutcomeUnknown) as trouble:
            raise coordination.ToozConnectionError(str(trouble)) from trouble
        except HoldfastError as trouble:
            raise tooz.ToozError(str(trouble)) from trouble

    return translated


class HoldfastLock(locking.Lock):
    """A lock. It is renewed in the background for as long as the process lives: no heartbeat."""

    def __init__(self, driver: HoldfastDriver, name: bytes, key: str) -> None:
        super().__init__(name)
        self._driver = driver
        self._key = key
        self._held = HeldLeases()

    @property
    def acquired(self) -> bool:
        """Whether this object holds the lock now, surely."""
        lease = self._held.look()
        return lease is not None and lease.held

    @property
    def fence(self) -> int | None:
        """The fencing number of the lease that this object holds. tooz itself has none."""
        lease = self._held.look()
        return None if lease is None else lease.fence

    @_tooz_errors
    def acquire(
        self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None
    ) -> bool:
        """Acquire the lock. Returns False if it was not free, or not in time."""
        waits, timeout = utils.convert_blocking(blocking, timeout)
        try:
            self._held.add(
                self._driver.locks.acquire(
                    self._key,
                    timeout=timeout if waits else 0,
                    mode="shared" if shared else None,
                    owner=self._driver.member_name,
                    note={"member": self._driver.member_name},
                )
            )
        except Busy:
            return False
        self._driver.holding.add(self)
        return True

    @_tooz_errors
    def release(self) -> bool:
        """Give the lock back. Returns False if there was nothing to give back."""
        lease = self._held.take()
        if self._held.look() is None:
            self._driver.holding.discard(self)
        return lease is not None and lease.release()

    @_tooz_errors
    def is_still_owner(self) -> bool:
        """Whether the lock is still held, as the store knows it."""
        lease = self._held.look()
        if lease is None:
            return False
        try:
            lease.renew()
        except LeaseLost:
            return False
        return True

    @_tooz_errors
    def break_(self) -> bool:
        """Evict whoever holds the lock. They learn of it at their next renewal."""
        return bool(self._driver.locks.evict(self._key, reason="broken through tooz"))


class HoldfastDriver(coordination.CoordinationDriver):
    """Locks and leaders on any store of Holdfast's."""

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(member_id, parsed_url, options)
        self._parsed_url = parsed_url
        self._options = {name: hidden(value) for name, value in utils.collapse(options).items()}
        self._namespace = str(self._options.get("namespace", DEFAULT_NAMESPACE))
        self._locks: Locks | None = None
        self._leader_locks: dict[bytes, HoldfastLock] = {}
        # A lease that nothing refers to is lost, and tooz lets callers forget the lock object.
        self.holding: set[HoldfastLock] = set()
        self.member_name = _readable(member_id)

    @property
    def CHARACTERISTICS(self) -> tuple[Characteristics, ...]:  # type: ignore[override]
        """What this driver promises, which depends on the store."""
        return _characteristics(self._connected().facts)

    @property
    def locks(self) -> Locks:
        """The client. Raises unless the coordinator was started."""
        if self._locks is None or not self.is_started:
            raise tooz.ToozError("This coordinator is not started: call start().")
        return self._locks

    @_tooz_errors
    def _start(self) -> None:
        try:
            self._connected().show(self._key("lock", b"start"))  # the store answers, or this raises
        except BaseException:
            self._close()
            raise

    def _stop(self) -> None:
        self._close()  # first: it gives back only leases that something refers to
        self._leader_locks.clear()
        self.holding.clear()

    def _close(self) -> None:
        """Close the client, which gives back what it holds."""
        locks, self._locks = self._locks, None
        if locks is not None:
            locks.close()

    @_tooz_errors
    def _connected(self) -> Locks:
        if self._locks is None:
            options = dict(self._options)
            settings = {name: _read(name, options.pop(name)) for name in OPTIONS & options.keys()}
            settings.pop("namespace", None)
            url, in_url = _store_url(self._parsed_url)
            given = {name: value for name, value in options.items() if name not in in_url}
            self._locks = holdfast.connect(url, **settings, **given)
        return self._locks

    def _key(self, kind: str, name: bytes) -> str:
        return f"{self._namespace}{kind}:{_readable(name)}"

    # --- locks ------------------------------------------------------------------------------

    def get_lock(self, name: bytes) -> HoldfastLock:
        """Returns a lock object. Objects for the same name exclude each other."""
        return HoldfastLock(self, name, self._key("lock", name))

    # --- leaders ----------------------------------------------------------------------------

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Run for the lead of every group with `watch_elected_as_leader`."""
        self.run_elect_coordinator()
        return []

    def run_elect_coordinator(self) -> None:
        """Lead the groups that nobody leads, and tell the callbacks. Never waits."""
        for group_id, callbacks in list(self._hooks_elected_leader.items()):
            lock = self._leader_lock(group_id)
            if callbacks and not lock.acquired and lock.acquire(blocking=False):
                callbacks.run(coordination.LeaderElected(group_id, self._member_id))

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """Let others lead. Returns False if this member does not lead."""
        return self._leader_lock(group_id).release()

    def get_leader(self, group_id: bytes) -> coordination.CoordAsyncResult[bytes]:
        """Returns, as a result that is there at once, the member that leads, or None."""
        return _result(self._leader(self._key("leader", group_id)))

    @_tooz_errors
    def _leader(self, key: str) -> Any:
        leader = self.locks.leader(key)
        if leader is None:
            return None
        # Whoever leads by other means has an owner, and no member.
        return unquote_to_bytes(leader.note.get("member", leader.owner))

    def _leader_lock(self, group_id: bytes) -> HoldfastLock:
        if group_id not in self._leader_locks:
            key = self._key("leader", group_id)
            self._leader_locks[group_id] = HoldfastLock(self, group_id, key)
        return self._leader_locks[group_id]

    # --- groups: not here -------------------------------------------------------------------

    def watch_join_group(self, group_id: bytes, callback: Any) -> None:
        raise _no_groups()

    def unwatch_join_group(self, group_id: bytes, callback: Any) -> None:
        raise _no_groups()

    def watch_leave_group(self, group_id: bytes, callback: Any) -> None:
        raise _no_groups()

    def unwatch_leave_group(self, group_id: bytes, callback: Any) -> None:
        raise _no_groups()


def _no_groups() -> Exception:
    return tooz.NotImplemented("Holdfast's driver has locks and leaders, but no groups of members.")


def _store_url(parsed: Any) -> tuple[StoreSource, set[str]]:
    """Returns where the store is, and the names of the options in its URL."""
    if parsed.netloc:
        raise tooz.ToozError(
            f"Write the URL of the store after `holdfast:`, as in holdfast:redis://{parsed.hostname}"
        )
    if parsed.path in ("", "//"):
        return DEFAULT, set()
    parts = [part for part in parsed.query.split("&") if part]
    names = {unquote_plus(part.partition("=")[0]) for part in parts}
    query = "&".join(part for part in parts if unquote_plus(part.partition("=")[0]) not in OPTIONS)
    return hidden(parsed.path + (f"?{query}" if query else "")), names


def _read(name: str, text: Any) -> Any:
    try:
        return OPTIONS[name](text)
    except ValueError:
        raise tooz.ToozError(f"The option {name} is a number of seconds, not {text}.") from None


def _readable(name: bytes | str) -> str:
    """Returns a name as text, from which it can be had again. Every name has its own."""
    return quote_from_bytes(name.encode() if isinstance(name, str) else name, safe=READABLE)


def _characteristics(facts: Facts) -> tuple[Characteristics, ...]:
    shared_by = {
        "process": (),
        "host": (Characteristics.DISTRIBUTED_ACROSS_PROCESSES,),
        "network": (
            Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
            Characteristics.DISTRIBUTED_ACROSS_HOSTS,
        ),
    }
    order = (Characteristics.LINEARIZABLE, Characteristics.SEQUENTIAL, Characteristics.CAUSAL)
    return (
        Characteristics.DISTRIBUTED_ACROSS_THREADS,
        *shared_by[facts.reach],
        *(order if facts.linearizable else ()),
    )


def _result(value: Any) -> coordination.CoordAsyncResult[Any]:
    done: Future[Any] = Future()
    done.set_result(value)
    return coordination.CoordinatorResult(done)
