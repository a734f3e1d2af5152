"""What `run` and `wait` say while they wait: who holds the lock, for how long, who is ahead.

On a terminal that is a line that keeps changing; elsewhere one line when the wait begins
and one whenever somebody else holds the lock.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.cli.session import tell
from holdfast.cli.signals import held_back
from holdfast.cli.terminal import is_terminal
from holdfast.core import events
from holdfast.core.records import Micros
from holdfast.core.waiting import blocking
from holdfast.observe.log import duration, printable
from holdfast.runtime import clock
from holdfast.stores.url import redact

if TYPE_CHECKING:
    from rich.live import Live


class Teller(Protocol):
    """Who turns the news of a wait into something to read."""

    def say(self, event: events.Waiting | events.StoreTrouble) -> None: ...
    def end(self) -> None: ...


class Reporter:
    """Listens to a client's events. Also from the keeper's threads, once there is a lease."""

    def __init__(self, teller: Teller | None, *, quiet: bool) -> None:
        self._teller = teller
        self._quiet = quiet

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Waiting | events.StoreTrouble) and self._teller is not None:
            self._teller.say(event)
        elif not self._quiet:
            _tell_while_held(event)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *exc: object) -> None:
        """The wait is over."""
        teller, self._teller = self._teller, None
        if teller is not None:
            teller.end()


def teller_for(*, waits: bool, quiet: bool, verbose: bool) -> Teller | None:
    """How to tell; None: not at all (with `--verbose` the log says it all)."""
    if not waits or quiet or verbose:
        return None
    return SpinnerTeller() if is_terminal(sys.stderr) else LineTeller()


def _tell_while_held(event: events.Event) -> None:
    match event:
        case events.InDanger(key, _, _, remaining):
            tell(
                f"the lease on {key!r} is in danger: it could not be renewed and runs out in "
                f"{duration(remaining)}"
            )
        case events.OutOfDanger(key):
            tell(f"the lease on {key!r} is out of danger")


class LineTeller:
    """One line for each thing that is new."""

    def __init__(self) -> None:
        self._trouble = False

    def say(self, event: events.Waiting | events.StoreTrouble) -> None:
        if isinstance(event, events.StoreTrouble):
            if not self._trouble:
                tell(trouble(event))
            self._trouble = True
        elif event.news or self._trouble:
            self._trouble = False
            tell(f"waiting for {situation(event, 0)}")

    def end(self) -> None:
        pass


class SpinnerTeller:
    """A line on the terminal that says how things stand at this moment."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._event: events.Waiting | events.StoreTrouble | None = None
        self._heard_at: Micros = 0
        self._began_at: Micros = clock.monotonic()

    def say(self, event: events.Waiting | events.StoreTrouble) -> None:
        self._event, self._heard_at = event, clock.monotonic()
        if self._live is None:
            with held_back():  # the cursor is hidden now, and `end` must know of it
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
            return f"{situation(self._event, now - self._heard_at)}, {waited}"
        assert self._event is not None
        return f"{trouble(self._event)}, {waited}"


def situation(event: events.Waiting, since: Micros) -> str:
    """Who is in the way and for how much longer, some time after the event."""
    who = f"{event.key!r}: {blocking(event.holders, len(event.ahead) + event.more)}"
    if event.frees_in is None or not event.holders:
        return who
    return f"{who}, for another {duration(max(0, event.frees_in - since))} unless renewed"


def trouble(event: events.StoreTrouble) -> str:
    """That the store failed, and that it is tried again."""
    return f"{event.key!r}: the store failed, trying again: {redact(event.error)}"
