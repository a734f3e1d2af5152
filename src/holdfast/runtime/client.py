"""`Client`: everything in this process that belongs to one open store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.holds import Hold
from holdfast.core.observations import Observations
from holdfast.errors import ClientClosed, ClientForked, HoldfastError, UsageError
from holdfast.observe.sinks import Sink, Sinks
from holdfast.runtime import endings, fork_hooks
from holdfast.runtime.driver import Driver
from holdfast.runtime.giving_back import GivingBack
from holdfast.runtime.leases_in_use import LeasesInUse
from holdfast.stores.base import Store


class Client:
    """A store with its observations and leases, and whether it can be used here.

    Both faces are built on a client."""

    def __init__(self, store: Store, sinks: Sequence[Sink], beats_per_second: float | None) -> None:
        self.store = store
        self.facts = store.facts
        self.sinks = Sinks(sinks)
        self.observations = Observations(store.facts)
        self._unusable: type[HoldfastError] | None = None
        # For the keeper, which works in threads in both faces.
        driver = Driver(store, self.observations, self.sinks.emit, _never_kept, self.check_usable)
        self.leases = LeasesInUse(
            driver, self.observations, self.sinks, self.check_usable, beats_per_second
        )
        fork_hooks.register(self)
        endings.register(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError("Locks cannot be copied or pickled: call connect() where they are used.")

    def check_usable(self) -> None:
        """Raise if the client was closed, or belongs to the parent process."""
        if self._unusable is not None:
            raise self._unusable

    @property
    def usable(self) -> bool:
        """Whether the client is open and was made in this process."""
        return self._unusable is None

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that made the client."""
        return self.leases.forked

    def close(self) -> GivingBack | None:
        """End all leases. Returns what gives them back; the caller waits for it and then closes
        the store. Returns None if the client was closed before or belongs to the parent."""
        if self._unusable is not None:
            return None
        self._unusable = ClientClosed
        return self.leases.close()

    def end(self) -> None:
        """Give back what is still held, because the program ends."""
        giving_back = self.close()
        if giving_back is not None:
            giving_back.wait()

    def abandon(self) -> None:
        """Mark everything here as the parent's. Called in a forked child."""
        self.leases.forked = True
        self._unusable = ClientForked
        self.store.abandon()


def _never_kept(hold: Hold) -> None:
    raise AssertionError(f"renewals keep nothing: {hold}")
