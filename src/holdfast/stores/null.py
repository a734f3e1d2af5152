"""No locks at all: everything is granted at once. For development without a lock store."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from holdfast import clock
from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Facts, Page, Swapped, Version, exactly
from holdfast.core.records import SECOND, Micros, Record
from holdfast.stores.base import Outcome, Store

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL


class LocksDisabled(UserWarning):
    """Holdfast is switched off here, and every lock is granted to everyone."""


class NullStore(Store):
    """Remembers nothing and agrees to everything."""

    facts = Facts(
        name="null",
        linearizable=False,
        clock="process",
        reach="process",
        wakeup="poll",
        durable=False,
        caveats=("Nothing is locked: every claim is granted at once.",),
    )

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> NullStore:
        """`null://`. Says so, loudly."""
        warnings.warn(
            "Holdfast is disabled (null://): every lock is granted at once and nothing is "
            "protected. Set HOLDFAST_URL to a real store in production.",
            LocksDisabled,
            stacklevel=4,
        )
        return cls()

    def load(self, key: str) -> Entry:
        """Nothing, ever."""
        return Entry(now=exactly(clock.wall()))

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """Fine."""
        return Swapped(0, exactly(clock.wall()))

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """Nothing."""
        return Page(())

    def wait(self, key: str, version: Version, token: str, at_most: Micros) -> None:
        """Nobody ever waits here."""
        import time

        time.sleep(at_most / SECOND)
