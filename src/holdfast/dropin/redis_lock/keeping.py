"""Renewals in the background: Holdfast's own keeper, for locks that are not Holdfast's.

One keeper per process for all clients. It knows a lock only weakly: one that nobody refers
to any more is not renewed, and the ttl frees it. After a fork the child renews nothing.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from holdfast import clock
from holdfast.core.commands import Granted
from holdfast.core.holds import Care, Hold, hold_of
from holdfast.core.records import SECOND, Holder
from holdfast.drivers.keeping import KeeperRunner
from holdfast.errors import HoldfastError, LeaseLost

logger = logging.getLogger("holdfast")

Renew = Callable[[], bool]  # False: the token does not hold the lock any more


class Renewals:
    """The keeper's beats and news, for the locks of redis-py's kind."""

    def __init__(self) -> None:
        self._kept: dict[Hold, tuple[Renew, weakref.ref[Any]]] = {}
        self._runner = KeeperRunner(self._beat, 1, self, None)

    def keep(self, lock: Any, ttl_ms: int, since: float, renew: Renew) -> Hold:
        """Renew a lock that was got at this moment, until it is ended, lost or forgotten."""
        holder = Holder(
            token="", fence=0, owner="", mode="exclusive",
            ttl=max(1, ttl_ms * 1000), acquired_at=0, expires_at=0, beat="",
        )  # fmt: skip
        hold = hold_of(_shown(lock.name), Granted(holder), int(since * SECOND), Care())
        drop = self._runner.drop
        self._kept[hold] = renew, weakref.ref(lock, lambda _: drop(hold))
        self._runner.add(hold)
        return hold

    def end(self, hold: Hold) -> None:
        """Renew it no more."""
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
        except Exception as trouble:
            logger.warning("The lock on %s was not renewed: %s", hold.key, trouble)
            return HoldfastError(str(trouble))
        hold.extend(hold.holder, sent)
        return None

    # --- what the keeper tells (see keeping.Listener) ---------------------------------------

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
        """Locks of this kind have no queue."""

    def dropped(self, hold: Hold) -> None:
        """Nobody refers to the lock any more."""
        self._kept.pop(hold, None)
        logger.warning("The lock on %s is not renewed: nobody refers to it", hold.key)


_renewals: Renewals | None = None


def renewals() -> Renewals:
    """Those of this process."""
    global _renewals
    if _renewals is None:
        _renewals = Renewals()
    return _renewals


def _in_child() -> None:
    global _renewals
    _renewals = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _shown(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
