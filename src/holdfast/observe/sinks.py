"""Where a client's events go: to any number of sinks, of which the log is one.

A sink is a function that takes an event. It is called in whatever thread the event happens, and
the keeper waits for it too, so it should not take long. One that fails is logged, and harms
neither the lock nor the other sinks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from holdfast.core.events import Event
from holdfast.observe.log import log_event, logger

Sink: TypeAlias = Callable[[Event], None]


class Sinks:
    """The sinks of one client."""

    __slots__ = ("_sinks", "listening")

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks: tuple[Sink, ...] = (log_event, *sinks)
        # Whether anybody receives the events of ordinary work. If not, they are not even made.
        # Every acquire and release asks, so there is no function of ours in between.
        self.listening: Callable[[], bool] = partial(logger.isEnabledFor, logging.INFO)
        if sinks:
            self.listening = partial(bool, True)

    def emit(self, event: Event) -> None:
        """Pass the event to every sink."""
        for sink in self._sinks:
            try:
                sink(event)
            except Exception:
                logger.exception("A listener of Holdfast events failed")
