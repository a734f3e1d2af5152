"""`Client`: everything in this process that belongs to one open store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from holdfast.core.cohorts import Cohorts
from holdfast.core.holds import Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Micros
from holdfast.core.waiting import REQUEST_TIMEOUT
from holdfast.errors import ClientClosed, ClientForked, HoldfastError, UsageError
from holdfast.observe.sinks import Sinks
from holdfast.runtime import clock, endings, fork_hooks
from holdfast.runtime.driver import Driver
from holdfast.runtime.giving_back import CLOSE_S, END_S, GivingBack
from holdfast.runtime.leases_in_use import LeasesInUse
from holdfast.stores.base import Store

# Clients of the parent, in a forked child. They are never collected here: what ends with them, such
# as a connection of an event loop, could disturb the parent, which still uses it.
_of_the_parent: list[Client] = []


class Client:
    """A store with its observations and leases, and whether it can be used here.

    Both faces are built on a client. It belongs to the process that made it."""

    def __init__(
        self,
        store: Store,
        sinks: Sinks,
        beats_per_second: float | None,
        request_timeout: Micros = REQUEST_TIMEOUT,
        *,
        pass_on: bool = True,
    ) -> None:
        self.store = store
        self.facts = store.facts
        self.sinks = sinks
        self.observations = Observations(store.facts, store.awaits)
        self.process = os.getpid()
        self._unusable: type[HoldfastError] | None = None
        self._cleans_until: Micros = 0  # until then a closed client gives back and cleans up
        # For the keeper and for clean-ups, which work in threads in both faces.
        driver = Driver(
            store,
            self.observations,
            sinks.emit,
            _never_kept,
            self._check_may_clean_up,
            request_timeout,
            answered=sinks.answered,
        )
        # Callers that want one lock in the same way pass it on among themselves. Where everything
        # is granted, nobody waits.
        pass_on = pass_on and store.facts.name != "null"
        self.cohorts = Cohorts(threading.Lock(), pass_on=pass_on)
        self.leases = LeasesInUse(
            driver,
            self.observations,
            self.sinks,
            self.check_usable,
            beats_per_second,
            self.cohorts,
        )
        fork_hooks.register(self)
        endings.register(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError("Locks cannot be copied or pickled: call connect() where they are used.")

    def check_usable(self) -> None:
        """Raise if the client was closed, or belongs to the parent process."""
        if self._unusable is not None:
            raise self._unusable

    def _check_may_clean_up(self) -> None:
        """The same for what gives back and cleans up: a pause between two tries of it may end while
        the client is being closed."""
        if self._unusable is not None and clock.monotonic() >= self._cleans_until:
            raise self._unusable

    @property
    def usable(self) -> bool:
        """Whether the client is open and was made in this process."""
        return self._unusable is None and not self.leases.forked

    @property
    def closed(self) -> bool:
        """Whether somebody has closed the client."""
        return self._unusable is ClientClosed

    def close(self, within_s: float = CLOSE_S) -> GivingBack | None:
        """End all leases. Returns what gives them back; the caller waits for it and then closes
        the store. Returns None if the client was closed before or belongs to the parent."""
        if not self.usable:
            self._unusable = ClientClosed
            return None
        self._cleans_until = clock.monotonic() + int(within_s * SECOND)
        self._unusable = ClientClosed
        return self.leases.close(within_s)

    def end(self) -> Callable[[], object]:
        """Begin to give back what is still held, because the program ends. Returns what waits."""
        giving_back = self.close(END_S)
        return _nothing if giving_back is None else giving_back.wait

    def abandon(self) -> None:
        """Mark everything here as the parent's. Called in a forked child; may be repeated."""
        if self._unusable is None:
            self._unusable = ClientForked
            _of_the_parent.append(self)
            self.leases.abandon()
            self.store.abandon()


def _nothing() -> None:
    """There is nothing to wait for."""


def _never_kept(hold: Hold) -> None:
    raise AssertionError(f"renewals keep nothing: {hold}")
