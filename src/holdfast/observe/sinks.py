"""Where a client's events go: to any number of sinks, of which the log is one.

A sink is a function that takes an event. Each sink has a thread of its own that calls it, with one
event after the other in the order in which they happened. So a sink may be slow, and need not be
safe for threads; neither a call nor the keeper ever waits for it. If too many events wait for it,
new ones are dropped and counted.

A sink with a true attribute `inline` is called at once instead, in whatever thread the event
happens, and everybody waits for it. That is for sinks which are quick and safe for threads, or
need the context of the call: the log, metrics, traces.

A sink that fails is logged, and the other sinks are told (`SinkTrouble`).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from holdfast.core.events import (
    Event,
    Renewed,
    SinkFault,
    SinkTrouble,
    StoreAnswered,
    StoreTrouble,
    Waiting,
)
from holdfast.observe.log import log_event, logger
from holdfast.observe.presence import StorePresence
from holdfast.runtime import fork_hooks
from holdfast.runtime.frames import raised_by_signal

Sink: TypeAlias = Callable[[Event], None]

# So many events may wait for one sink.
MOST_WAITING = 10_000
# A call that takes longer than this is counted as slow.
SLOW_S = 1.0
# A thread without events ends after this time, so that a client that was never closed can be
# collected.
IDLE_S = 10.0


# What every client of this process has besides its own sinks.
_defaults: list[Sink] = []


def add_default(sink: Sink) -> None:
    """Give this sink to every client that is made from now on."""
    _defaults.append(sink)


def remove_default(sink: Sink) -> None:
    """Give this sink to no further client."""
    _defaults.remove(sink)


# These show that the store has answered.
_ANSWERS = frozenset((Waiting, Renewed))


class Sinks:
    """The sinks of one client."""

    __slots__ = (
        "_inline", "_queued", "_told_of_requests", "answered", "listening", "presence", "starts",
    )  # fmt: skip

    def __init__(self, inline: Sequence[Sink] = (), sinks: Sequence[Sink] = ()) -> None:
        sinks = (*sinks, *_defaults)
        at_once = [sink for sink in sinks if getattr(sink, "inline", False)]
        self._inline: tuple[Sink, ...] = (log_event, *inline, *at_once)
        self._queued = tuple(
            QueuedSink(sink, self._failed) for sink in sinks if sink not in at_once
        )
        # Whether anybody receives the events of ordinary work. If not, they are not even made.
        # Every acquire and release asks, so there is no function of ours in between.
        self.listening: Callable[[], bool] = partial(logger.isEnabledFor, logging.INFO)
        if inline or sinks:
            self.listening = partial(bool, True)
        self.presence = StorePresence(self.emit)
        # Whether anybody wants to be told that attempts begin. The log does not.
        self.starts = bool(self._queued) or any(
            getattr(sink, "starts", True) for sink in self._inline[1:]
        )
        # Whether anybody wants to be told of every request to the store.
        self._told_of_requests = tuple(
            sink for sink in self._inline if getattr(sink, "requests", False)
        ) + tuple(queued.put for queued in self._queued if getattr(queued.sink, "requests", False))
        self.answered: Callable[[StoreAnswered], None] | None = None
        if self._told_of_requests:
            self.answered = self.emit_request
            only, *others = self._told_of_requests
            if not others and getattr(only, "never_raises", False):
                self.answered = only  # nothing in between: every request comes here

    def trace_of(self, attempt: int) -> str:
        """Returns the trace context of a lease, for its ticket; empty if nobody traces."""
        for sink in self._inline:
            trace_of = getattr(sink, "trace_of", None)
            if trace_of is not None:
                try:
                    return str(trace_of(attempt))
                except Exception:
                    self._failed(sink, "raised")
        return ""

    def emit(self, event: Event) -> None:
        """Pass the event to every sink. Only waits for those that are inline, and never raises
        but for a signal handler."""
        kind = type(event)
        if kind is StoreTrouble:
            self.presence.failed(event.error)  # type: ignore[union-attr]
        elif self.presence.away and kind in _ANSWERS:
            self.presence.answered()
        for sink in self._inline:
            try:
                sink(event)
            except Exception as exc:
                if raised_by_signal(exc):  # it is the caller's, and no fault of the sink
                    raise
                self._failed(sink, "raised")
        for queued in self._queued:
            queued.put(event)

    def emit_request(self, event: StoreAnswered) -> None:
        """Pass on how long a request took, to the sinks that want to know."""
        for sink in self._told_of_requests:
            try:
                sink(event)
            except Exception:
                self._failed(sink, "raised")

    @property
    def idle(self) -> bool:
        """Whether the sinks have taken all events so far."""
        return not any(queued.busy for queued in self._queued)

    def close(self, within_s: float) -> None:
        """Wait so long until the sinks have taken all events. No more will come."""
        self.presence.close()
        until = time.monotonic() + within_s
        for queued in self._queued:
            queued.close(until)

    def _failed(self, sink: Sink, fault: SinkFault) -> None:
        """Log that a sink failed, and tell the others. (A sink that fails at that, too, is only
        logged: two that fail would go on telling each other.)"""
        name = name_of(sink)
        if fault == "raised":
            logger.exception("A sink of Holdfast events failed: %s", name)
        elif fault == "slow":
            logger.warning("A sink of Holdfast events takes longer than a second: %s", name)
        else:
            logger.warning("Events are dropped, because a sink is too slow: %s", name)
        trouble = SinkTrouble(name, fault)
        for other in self._inline[1:]:
            if other is not sink:
                _call(other, trouble)
        for queued in self._queued:
            if queued.sink is not sink:
                queued.put(trouble)


def name_of(sink: Sink) -> str:
    """Returns a name for a sink: of its function, or of its class."""
    return getattr(sink, "__qualname__", None) or type(sink).__qualname__


def _call(sink: Sink, event: Event) -> None:
    try:
        sink(event)
    except Exception:
        logger.exception("A sink of Holdfast events failed: %s", name_of(sink))


class QueuedSink:
    """Passes events on to a sink in a thread of its own, started when there is an event."""

    def __init__(self, sink: Sink, failed: Callable[[Sink, SinkFault], None]) -> None:
        self.sink = sink
        self._failed = failed
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._serving = False  # whether there is a thread
        self._calling = False  # whether it is calling the sink
        self._dropping = False
        _queued.add(self)

    def put(self, event: Event) -> None:
        """Have the sink called with this event, or drop it if too many wait already."""
        with self._changed:
            full = len(self._events) >= MOST_WAITING
            told = full and not self._dropping
            self._dropping = full
            if not full:
                self._events.append(event)
                if self._serving:
                    self._changed.notify_all()
                else:
                    self._start()
        if told:
            self._failed(self.sink, "dropped")

    @property
    def busy(self) -> bool:
        """Whether the sink has not taken everything yet."""
        return self._serving and bool(self._events or self._calling)

    def close(self, until: float) -> None:
        """Wait until the sink has taken everything, but no longer than this."""
        with self._changed:
            while self.busy:
                rest = until - time.monotonic()
                if rest <= 0 or not self._changed.wait(rest):
                    return

    def in_child(self) -> None:
        """Start anew in a forked child: its parent's events are the parent's to tell."""
        self._events.clear()
        self._changed = threading.Condition()
        self._serving = self._calling = self._dropping = False

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="holdfast-sink", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: the next event tries again
            return
        self._serving = True

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._calling = False
                self._changed.notify_all()
                if not self._events and not self._changed.wait_for(
                    lambda: bool(self._events), IDLE_S
                ):
                    self._serving = False
                    return
                event = self._events.popleft()
                self._calling = True
            began = time.monotonic()
            try:
                self.sink(event)
            except BaseException:  # also `sys.exit()`, which would only end this thread
                self._failed(self.sink, "raised")
            if time.monotonic() - began > SLOW_S:
                self._failed(self.sink, "slow")


_queued: weakref.WeakSet[QueuedSink] = weakref.WeakSet()


@fork_hooks.in_child
def _in_child() -> None:
    for queued in list(_queued):
        queued.in_child()
