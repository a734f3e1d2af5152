"""The part of a lease that needs no store and is the same in both faces."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from holdfast.api.info import WaiterInfo, waiter_info
from holdfast.api.options import check_callback, check_switch
from holdfast.api.requests import share_ticket
from holdfast.core.holds import Hold
from holdfast.core.records import SECOND, Mode, Note
from holdfast.errors import UsageError
from holdfast.runtime import clock, fork_hooks
from holdfast.runtime.client import Client

R = TypeVar("R")
E = TypeVar("E")
L = TypeVar("L", bound="LeaseBase[Any]")

_setup = threading.Lock()  # for the rare first use of an event or a callback


@fork_hooks.in_child
def _in_child() -> None:
    """Replace the mutex: in the parent another thread, which a child lacks, may hold it."""
    global _setup
    _setup = threading.Lock()


class Signals(Generic[E]):
    """The `lost` event of a lease and the way to its callbacks, made on first use.

    The keeper reaches them through the hold. They refer to the lease only weakly, so that a lease
    that nothing else refers to can be collected. The lease itself keeps the callbacks, because
    they may refer to it.
    """

    def __init__(self, lease: LeaseBase[E]) -> None:
        self._lease = weakref.ref(lease)
        self.lost: E = lease._new_event()

    def tell(self, what: str) -> None:
        """Pass the keeper's news on to the lease. Called from the keeper's threads."""
        lease = self._lease()
        if lease is None:
            return
        if what == "lost":
            lease._set_event(self.lost)
        for callback in list(lease._callbacks.get(what, ())):
            if what != "lost" or lease._take_callback(what, callback):
                lease._call(callback)


class LeaseBase(Generic[E]):
    """A grant in its holder's hands, until it is released, handed over or lost."""

    __slots__ = ("__weakref__", "_callbacks", "_client", "_hold")
    _callbacks: dict[str, list[Callable[..., Any]]]  # there as soon as there are signals

    def __init__(self, client: Client, hold: Hold) -> None:
        self._client = client
        self._hold = hold

    def __reduce_ex__(self, protocol: Any) -> Any:
        # For `copy` and `pickle`. There can be no second one: the first that is dropped ends it.
        raise UsageError(
            "A lease cannot be copied or pickled: pass on a ticket of share() and join() it there."
        )

    def __repr__(self) -> str:
        state = "held" if self.held else self._hold.state
        name = type(self).__name__
        return f"<{name} {self.key!r} fence={self.fence} owner={self.owner!r} {state}>"

    @property
    def hold(self) -> Hold:
        """The core's state of the lease, for integrations. It has the token: do not show it."""
        return self._hold

    # --- what it is -------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key that is locked."""
        return self._hold.key

    @property
    def fence(self) -> int:
        """The fencing number: larger than that of every earlier lease on this key."""
        return self._hold.fence

    @property
    def owner(self) -> str:
        """The name of the holder, for people."""
        return self._hold.owner

    @property
    def mode(self) -> Mode:
        """`exclusive`, `shared` or `counted`."""
        return self._hold.holder.mode

    @property
    def limit(self) -> int | None:
        """How many holders there may be at once, for a counted lease."""
        return self._hold.holder.limit

    @property
    def ttl(self) -> float:
        """How many seconds the lease lasts without a renewal."""
        return self._hold.ttl / SECOND

    @property
    def note(self) -> Note:
        """The note that was given when the lock was acquired."""
        return dict(self._hold.holder.note)

    # --- how it stands ----------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the lease is surely valid now. Never asks the store."""
        return self._client.leases.held(self._hold)

    def remaining(self) -> float:
        """Returns how many seconds the lease is valid without another renewal; 0 if it is not."""
        if not self.held:
            return 0.0
        return max(0, self._hold.deadline - clock.monotonic()) / SECOND

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is surely valid now. Never asks the store."""
        self._client.leases.check_held(self._hold)

    def alive(self) -> None:
        """Give a sign of life. A lease with a watchdog is lost if none comes for that time."""
        self._hold.alive = clock.monotonic()

    @property
    def wanted(self) -> tuple[WaiterInfo, ...]:
        """Who waits for the lock, as of the last renewal."""
        return tuple(waiter_info(self.key, waiter) for waiter in self._hold.wanted)

    @property
    def ticket(self) -> str:
        """A ticket with which a second party can keep this lease alive: `share()`."""
        return self.share()

    def share(self, *, release: bool = False) -> str:
        """Returns a ticket with which a second party can `join()` and keep this lease alive.

        Either side alone keeps the lease alive. A release by one side ends it for both, and the
        other side learns of it at its next renewal. Without `release=True` the joined party's
        `release()` only leaves, and its `hand_over()` is refused. That is a courtesy between
        parties that trust each other; the store does not enforce it. A ticket is a secret: whoever
        has it could also end the lease.
        """
        hold = self._hold
        hold.shared = True  # before the check: a release that comes between must not pass it on
        self._client.leases.check_held(hold)
        if check_switch(release, "release"):
            self._client.leases.check_may_end(hold)
        hold.shared = True
        trace = self._client.leases.sinks.trace_of(hold.attempt)
        return share_ticket(hold, release=release, trace=trace)

    # --- what it tells ----------------------------------------------------------------------

    @property
    def lost(self) -> E:
        """An event that is set when the lease is lost."""
        return self._signals().lost

    def on_danger(self, callback: Callable[[Self], R]) -> Callable[[Self], R]:
        """Call this with the lease when renewals have failed for two thirds of the ttl."""
        check_callback(callback, "on_danger")
        self._add_callback("danger", callback)
        return callback

    def on_lost(self, callback: Callable[[Self], R]) -> Callable[[Self], R]:
        """Call this with the lease when it is lost; at once if it already is."""
        check_callback(callback, "on_lost")
        self._add_callback("lost", callback)
        if self._hold.state == "lost" and self._take_callback("lost", callback):
            self._call(callback)
        return callback

    def on_wanted(self, callback: Callable[[Self], R]) -> Callable[[Self], R]:
        """Call this with the lease when somebody starts to wait for the lock."""
        check_callback(callback, "on_wanted")
        self._add_callback("wanted", callback)
        if self._hold.wanted and self._hold.state == "held":
            self._call(callback)
        return callback

    def _signals(self) -> Signals[E]:
        signals: Signals[E] | None = self._hold.signals
        if signals is None:
            with _setup:
                signals = self._hold.signals
                if signals is None:
                    self._callbacks = {}
                    signals = self._hold.signals = Signals(self)
            # It may have been lost just before, when there was no event to set.
            if self._hold.state == "lost":
                self._set_event(signals.lost)
        return signals

    def _add_callback(self, what: str, callback: Callable[..., Any]) -> None:
        """Remember a callback for `what`: danger, lost or wanted."""
        self._signals()
        with _setup:
            self._callbacks.setdefault(what, []).append(callback)

    def _take_callback(self, what: str, callback: Callable[..., Any]) -> bool:
        """Take a callback off the list. Returns True to one caller only, who then calls it."""
        with _setup:
            callbacks = self._callbacks.get(what, [])
            if callback in callbacks:
                callbacks.remove(callback)
                return True
            return False

    def _new_event(self) -> E:
        raise NotImplementedError

    def _set_event(self, event: E) -> None:
        raise NotImplementedError

    def _call(self, callback: Callable[..., Any]) -> None:
        raise NotImplementedError


def graver(one: BaseException | None, other: BaseException) -> BaseException:
    """Returns which of two exceptions to raise: the first, unless the other is an interrupt."""
    return other if one is None or not isinstance(other, Exception) else one


class LeasesBase(Sequence[L]):
    """Several leases that were acquired together, in the order of the request."""

    def __init__(self, leases: Sequence[L]) -> None:
        self._leases = tuple(leases)

    @overload
    def __getitem__(self, which: str | int) -> L: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[L]: ...
    def __getitem__(self, which: str | int | slice) -> L | Sequence[L]:
        """The lease at an index, or of a key."""
        if not isinstance(which, str):
            return self._leases[which]
        for lease in self._leases:
            if lease.key == which:
                return lease
        raise KeyError(which)

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[L]:
        return iter(self._leases)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {[lease.key for lease in self._leases]}>"

    @property
    def held(self) -> bool:
        """Whether all leases are surely valid now."""
        return all(lease.held for lease in self._leases)

    def check(self) -> None:
        """Raise `LeaseLost` unless all leases are surely valid now."""
        for lease in self._leases:
            lease.check()
