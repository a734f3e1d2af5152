# Made from leader_watch_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Looks now and then who leads, for `lead(…, on_change=…)`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.api.info import HolderInfo
from holdfast.api.once import call
from holdfast.errors import HoldfastError
from holdfast.observe.log import logger, printable

if TYPE_CHECKING:
    from holdfast.api.locks import Locks


# It looks every third of the ttl, but at least this often.
LONGEST_LOOK_S = 5.0


class LeaderWatch:
    """Calls a function with the leader of a key, or None, when that changes."""

    def __init__(
        self,
        locks: Locks,
        key: str,
        on_change: Callable[[HolderInfo | None], Any],
        look_every_s: float,
    ) -> None:
        self._locks = locks
        self._key = key
        self._on_change = on_change
        self._look_every_s = min(look_every_s, LONGEST_LOOK_S)
        self._over = threading.Event()

    def start(self) -> None:
        """Look from now on, in the background."""
        threading.Thread(target=self._watch, name="holdfast-leader", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _watch(self) -> None:
        leader: HolderInfo | None = None
        told = False
        while not self._over.is_set():
            try:
                now = self._locks.leader(self._key)
            except HoldfastError:
                now = leader  # the store does not answer: nothing is known to have changed
            if not told or _who(now) != _who(leader):
                leader, told = now, True
                self._tell(leader)
            self._over.wait(self._look_every_s)

    def _tell(self, leader: HolderInfo | None) -> None:
        try:
            call(self._on_change, leader)
        except Exception:
            logger.exception("on_change of %s failed", printable(self._key))


def _who(leader: HolderInfo | None) -> tuple[str, int] | None:
    return None if leader is None else (leader.owner, leader.fence)
