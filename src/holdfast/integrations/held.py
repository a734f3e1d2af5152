"""The leases behind a lock object of another library, which several threads may share."""

from __future__ import annotations

import threading

from holdfast.api.leases import Lease


class HeldLeases:
    """What one lock object has acquired and not yet released, and which thread did it.

    An object with a single slot would go wrong when a lease is lost: another thread acquires the
    lock through the same object, and the first one's `release()` would free the second one's lock.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._leases: list[tuple[int, Lease]] = []

    def add(self, lease: Lease) -> None:
        """Remember a lease of this thread, and forget those that it has lost: another thread that
        releases means the one that is held."""
        me = threading.get_ident()
        with self._mutex:
            self._leases = [one for one in self._leases if one[0] != me or one[1].held]
            self._leases.append((me, lease))

    def take(self) -> Lease | None:
        """Returns the lease to release: the last one of this thread; if it has none, because a lock
        may be released by another thread, the oldest one. None: there is nothing to release."""
        with self._mutex:
            found = self._find()
            if found is not None:
                self._leases.remove(found)
        return None if found is None else found[1]

    def look(self) -> Lease | None:
        """Returns the lease that `take()` would return, and leaves it."""
        with self._mutex:
            found = self._find()
        return None if found is None else found[1]

    def _find(self) -> tuple[int, Lease] | None:
        me = threading.get_ident()
        oldest = self._leases[0] if self._leases else None
        return next((entry for entry in reversed(self._leases) if entry[0] == me), oldest)
