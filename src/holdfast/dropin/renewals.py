"""Renewals in the background, by Holdfast's keeper, for the locks of the drop-ins.

One keeper serves all clients of a process. It has only weak references to the locks: a lock that
nobody refers to any more is no longer renewed, and its ttl frees it. A forked child renews nothing.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.core.commands import Granted
from holdfast.core.holds import Care, Hold, hold_of
from holdfast.core.records import SECOND, Holder
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.runtime import clock, fork_hooks
from holdfast.runtime.keeper_thread import KeeperThread

logger = logging.getLogger("holdfast")

# Renews a lock. Returns False, or raises `LeaseLost`, if the lock is somebody else's by now.
Renew = Callable[[], bool]


class Renewals:
    """Calls the renew functions of locks in time, and reports what becomes of them."""

    def __init__(self) -> None:
        self._kept: dict[Hold, tuple[Renew, weakref.ref[Any]]] = {}
        self._runner = KeeperThread(self._beat, 1, self, None)

    def keep(self, lock: Any, name: str, ttl_ms: int, since: float, renew: Renew) -> Hold:
        """Renew a lock that was acquired at `since`, until it is ended, lost or unreferenced."""
        holder = Holder(
            token="", fence=0, owner="", mode="exclusive",
            ttl=max(1, ttl_ms * 1000), acquired_at=0, expires_at=0, beat="",
        )  # fmt: skip
        hold = hold_of(name, Granted(holder), int(since * SECOND), Care())
        self._kept[hold] = renew, weakref.ref(lock)
        self._runner.add(hold, lock)
        return hold

    def kept(self, hold: Hold) -> Any:
        """Returns the lock of a hold, if it is being renewed and somebody refers to it."""
        kept = self._kept.get(hold)
        return None if kept is None else kept[1]()

    def end(self, hold: Hold) -> None:
        """Stop renewing it."""
        self._runner.end(hold, "released")
        self._kept.pop(hold, None)

    def _beat(self, holds: Sequence[Hold]) -> Sequence[Exception | None]:
        return [self._beat_one(hold) for hold in holds]

    def _beat_one(self, hold: Hold) -> Exception | None:
        kept = self._kept.get(hold)
        if kept is None:
            return None
        renew, _ = kept
        sent = clock.monotonic()
        try:
            if not renew():
                return LeaseLost(key=hold.key, why="its key is gone, or has another token")
        except LeaseLost as lost:
            return lost
        except Exception as trouble:
            logger.warning("The lock on %s was not renewed: %s", hold.key, trouble)
            return HoldfastError(str(trouble))
        hold.extend(hold.holder, sent)
        return None

    # --- what the keeper thread reports -----------------------------------------------------

    def in_danger(self, hold: Hold) -> None:
        """Renewals have been failing."""
        logger.warning("The lock on %s is in danger: renewals have been failing", hold.key)

    def out_of_danger(self, hold: Hold) -> None:
        """A renewal went through again."""
        logger.info("The lock on %s is out of danger", hold.key)

    def lost(self, hold: Hold) -> None:
        """It is no longer ours."""
        self._kept.pop(hold, None)
        logger.error("The lock on %s was lost: %s", hold.key, hold.why)

    def wanted(self, hold: Hold) -> None:
        """Nothing to do: locks of this kind have no queue."""

    def dropped(self, hold: Hold) -> None:
        """Nobody refers to the lock any more."""
        self._kept.pop(hold, None)
        logger.warning("The lock on %s is not renewed: nobody refers to it", hold.key)


_of_this_process: dict[type[Renewals], Renewals] = {}
R = TypeVar("R", bound=Renewals)


def renewals(kind: type[R]) -> R:
    """Returns the `Renewals` of this process, one of each kind."""
    found = _of_this_process.get(kind)
    if found is None:
        found = _of_this_process.setdefault(kind, kind())
    assert isinstance(found, kind)
    return found


fork_hooks.in_child(_of_this_process.clear)
