"""What `run` and `wait` show while they wait: who holds the lock, for how long, who is ahead.

On a terminal that is one line that keeps changing. Elsewhere it is one line when the wait begins,
and one whenever the holder changes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.cli.session import tell
from holdfast.cli.signals import signals_blocked
from holdfast.cli.terminal import is_terminal
from holdfast.core import events
from holdfast.core.records import SECOND, Micros
from holdfast.core.waiting import blocking
from holdfast.observe.log import duration, printable
from holdfast.runtime import clock
from holdfast.stores.url import redact

if TYPE_CHECKING:
    from rich.live import Live


class WaitDisplay(Protocol):
    """Shows the events of a wait to a person."""

    def show(self, event: events.Waiting | events.StoreTrouble) -> None: ...
    def end(self) -> None: ...


class Reporter:
    """The sink for a client's events. The keeper's threads call it too, once there is a lease."""

    def __init__(self, display: WaitDisplay | None, *, quiet: bool) -> None:
        self._display = display
        self._quiet = quiet

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Waiting | events.StoreTrouble) and self._display is not None:
            self._display.show(event)
        elif not self._quiet:
            _tell_while_held(event)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *exc: object) -> None:
        """The wait is over."""
        display, self._display = self._display, None
        if display is not None:
            display.end()


def display_for(*, waits: bool, quiet: bool, verbose: bool) -> WaitDisplay | None:
    """Returns the display for a wait; None if there is nothing to show, or the log shows it."""
    if not waits or quiet or verbose:
        return None
    return SpinnerDisplay() if is_terminal(sys.stderr) else LineDisplay()


def _tell_while_held(event: events.Event) -> None:
    match event:
        case events.InDanger(key, _, _, remaining):
            tell(
                f"the lease on {key!r} is in danger: it could not be renewed and runs out in "
                f"{duration(round(remaining * SECOND))}"
            )
        case events.OutOfDanger(key):
            tell(f"the lease on {key!r} is out of danger")


class LineDisplay:
    """Writes one line for each change."""

    def __init__(self) -> None:
        self._trouble = False

    def show(self, event: events.Waiting | events.StoreTrouble) -> None:
        if isinstance(event, events.StoreTrouble):
            if not self._trouble:
                tell(describe_trouble(event))
            self._trouble = True
        elif event.news or self._trouble:
            self._trouble = False
            tell(f"waiting for {describe_wait(event, 0)}")

    def end(self) -> None:
        pass


class SpinnerDisplay:
    """Keeps one line of the terminal up to date."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._event: events.Waiting | events.StoreTrouble | None = None
        self._heard_at: Micros = 0
        self._began_at: Micros = clock.monotonic()

    def show(self, event: events.Waiting | events.StoreTrouble) -> None:
        self._event, self._heard_at = event, clock.monotonic()
        if self._live is None:
            with signals_blocked():  # the cursor is hidden now, and `end` must know of it
                self._live = self._start()

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _start(self) -> Live:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots")
        live = Live(
            console=Console(stderr=True),
            get_renderable=self._render,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        return live

    def _render(self) -> Any:
        from rich.text import Text

        line = Text(printable(self._line()), no_wrap=True, overflow="ellipsis")
        self._spinner.update(text=line)
        return self._spinner

    def _line(self) -> str:
        now = clock.monotonic()
        waited = f"waited {duration(now - self._began_at)}"
        if isinstance(self._event, events.Waiting):
            return f"{describe_wait(self._event, now - self._heard_at)}, {waited}"
        assert self._event is not None
        return f"{describe_trouble(self._event)}, {waited}"


def describe_wait(event: events.Waiting, since: Micros) -> str:
    """Returns who holds the lock and for how much longer, some time after the event."""
    who = f"{event.key!r}: {blocking(event.holders, len(event.ahead) + event.more)}"
    if event.frees_in is None or not event.holders:
        return who
    frees_in = round(event.frees_in * SECOND) - since
    return f"{who}, free in {duration(max(0, frees_in))} unless renewed"


def describe_trouble(event: events.StoreTrouble) -> str:
    """Returns that the store failed and is tried again."""
    return f"{event.key!r}: the store failed, trying again: {redact(event.error)}"
