"""What belongs to one client in this process: its store, its memory of it, and its leases."""

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
    """A store, and whether it can be used here. Both faces are built on one."""

    def __init__(self, store: Store, sinks: Sequence[Sink], beats_per_second: float | None) -> None:
        self.store = store
        self.facts = store.facts
        self.sinks = Sinks(sinks)
        self.observations = Observations(store.facts)
        self._unusable: type[HoldfastError] | None = None
        # The keeper's, which works in threads whatever the face.
        driver = Driver(store, self.observations, self.sinks.emit, _never_kept, self.check_usable)
        self.leases = LeasesInUse(
            driver, self.observations, self.sinks, self.check_usable, beats_per_second
        )
        fork_hooks.register(self)
        endings.register(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError("Locks cannot be copied or pickled: call connect() where they are used.")

    def check_usable(self) -> None:
        """Raise unless this client can be used here."""
        if self._unusable is not None:
            raise self._unusable

    @property
    def usable(self) -> bool:
        """Neither closed, nor of the process that this one was forked from."""
        return self._unusable is None

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the client."""
        return self.leases.forked

    def close(self) -> GivingBack | None:
        """End the leases. The caller waits for those that are given back, and then closes the
        store. None: this client was closed before, or it is the parent process's."""
        if self._unusable is not None:
            return None
        self._unusable = ClientClosed
        return self.leases.close()

    def end(self) -> None:
        """The program ends: give back what is still held, as well as it goes."""
        giving_back = self.close()
        if giving_back is not None:
            giving_back.wait()

    def abandon(self) -> None:
        """In a forked child: everything here is the parent's."""
        self.leases.forked = True
        self._unusable = ClientForked
        self.store.abandon()


def _never_kept(hold: Hold) -> None:
    raise AssertionError(f"renewals keep nothing: {hold}")
