"""The null store grants everything at once. It is for development without a lock store."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from holdfast.core import rules
from holdfast.core.commands import (
    NOBODY,
    Command,
    Free,
    Offer,
    Renew,
    Stamp,
    Take,
    Wake,
)
from holdfast.core.contract import Applied, Entry, Facts, Page, Swapped, Version, exactly
from holdfast.core.records import NEVER, SECOND, Holder, Micros, Record
from holdfast.runtime import clock
from holdfast.stores.base import Outcome, Store

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

MOST_REMEMBERED = 10_000


class LocksDisabled(UserWarning):
    """Holdfast is switched off here, and every lock is granted to everyone."""


class NullStore(Store):
    """Grants every claim. Each token has a lock of its own, whatever the key. An unknown token,
    which another process may have drawn, counts as one that holds."""

    facts = Facts(
        name="null", linearizable=False, clock="process", reach="process", wakeup="poll",
        durable=False, scripted=True, history=False,
        caveats=("Nothing is locked: every claim is granted at once.",),
    )  # fmt: skip

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> NullStore:
        """Open `null://`, and warn that nothing is locked."""
        warnings.warn(
            "Holdfast is disabled (null://): every lock is granted at once and nothing is "
            "protected. Set HOLDFAST_URL to a real store in production.",
            LocksDisabled,
            stacklevel=_callers_level(),
        )
        return cls()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[str, Holder] = {}
        self._last: Micros = 0

    def apply(self, key: str, command: Command, beat: str, by: Micros = NEVER) -> Applied:
        """Decide by the rules, as if nobody else used the key."""
        with self._lock:
            at = self._last = max(clock.wall(), self._last + 1)
            mine = self._held_by(command, at)
            decision = rules.decide(command, Record(holders=mine), _alive, Stamp(at, beat))
            if decision.record is not None:
                for holder in mine:
                    self._holders.pop(holder.token, None)
                for holder in decision.record.holders[:1]:
                    self._holders[holder.token] = holder
            while len(self._holders) > MOST_REMEMBERED:
                del self._holders[next(iter(self._holders))]
        return Applied(decision.verdict, None, exactly(at))

    def _held_by(self, command: Command, at: Micros) -> tuple[Holder, ...]:
        if isinstance(command, Take):
            token = command.ticket
        elif isinstance(command, (Renew, Free, Offer)):
            token = command.token
        else:
            return ()
        known = self._holders.get(token)
        if known is not None:
            return (known,)
        ttl, offered = 30 * SECOND, isinstance(command, Take)
        return (Holder(token, at, "?", "exclusive", ttl, at, at + ttl, "", offered=offered),)

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """Returns no record."""
        return Entry(now=exactly(clock.wall()))

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Pretend to have written."""
        return Swapped(0, exactly(clock.wall()))

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """Returns an empty page."""
        return Page(())

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> None:
        """Sleep for the whole time: nothing changes here."""
        import time

        time.sleep(at_most / SECOND)

    def for_child(self) -> NullStore:
        """Returns one that has granted nothing yet."""
        return type(self)()


def _alive(_party: rules.Party) -> bool:
    return False


def _callers_level() -> int:
    """Returns how many frames up the first caller outside of Holdfast is, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("holdfast."):
        level, frame = level + 1, frame.f_back
    return level
