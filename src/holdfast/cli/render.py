"""Shows locks: tables and words for people, one line of JSON per value for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

import click
import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.api.info import HolderInfo, LockInfo, PastInfo, WaiterInfo
from holdfast.core.records import SECOND
from holdfast.observe.log import duration, printable

T = TypeVar("T")

# A listing for people is split into tables of this many locks, so that it streams.
ROWS = 200
# In a pipe nothing is folded or cut.
WIDE = 10_000
# A narrower terminal has no room for fences beside keys and owners.
ROOMY = 100
# A folded number is hard to read: only keys, owners and notes are folded.
_UNFOLDED = {"When", "Held since", "Mode", "Fence", "Since", "If not renewed", "Waiting", "Turn"}


def print_json(value: Any) -> None:
    """Write one line of JSON. It may go to a terminal, so characters that could move the cursor or
    reverse the text are escaped."""
    text = msgspec.json.encode(value).decode()
    if not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    click.echo(text.encode())


class OutputConsole(Console):
    """A console that reports a broken pipe, instead of ending the program as rich does."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Returns a console as wide as the terminal, or very wide in a pipe."""
    shown = OutputConsole(highlight=False)
    return shown if shown.is_terminal else OutputConsole(highlight=False, width=WIDE)


def new_table(*columns: str, title: str | None = None) -> Table:
    """Returns an empty table in the style of all our tables."""
    table = Table(
        *columns,
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = column.header in _UNFOLDED
    return table


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields the items in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


# --- locks --------------------------------------------------------------------------------


COLUMNS = ["Key", "Held by", "Mode", "Fence", "Since", "If not renewed", "Waiting"]

# What is in a cell, and its style.
Cell = tuple[str, str]


def lock_table(locks: Iterable[LockInfo], width: int) -> Table:
    """Returns a table with one line for each holder, for a terminal of this width."""
    shown = [column for column in COLUMNS if width >= ROOMY or column != "Fence"]
    table = new_table(*shown)
    for lock in locks:
        for row in _rows(lock):
            cells = dict(zip(COLUMNS, row, strict=False))
            table.add_row(*(plain(*cells.get(column, ("", ""))) for column in shown))
    return table


def lock_lines(locks: Iterable[LockInfo]) -> Iterator[str]:
    """Yields the same as plain text, for a pipe or a file. Nothing is folded; columns become wider
    when they must. 100,000 locks take seconds, where rich's tables take minutes."""
    widths, head = [0] * len(COLUMNS), [COLUMNS]
    for some in chunks(locks, ROWS):
        cells = (row for lock in some for row in _rows(lock))
        rows = [*head, *([printable(text) for text, _ in row] for row in cells)]
        for row in rows:
            if len(row) == len(COLUMNS):  # a shorter row is a fault of any length
                widths = [max(w, cell_len(text)) for w, text in zip(widths, row, strict=True)]
        yield from (_line(row, widths) for row in rows)
        head = []


def _line(row: list[str], widths: list[int]) -> str:
    padded = (text + " " * (w - cell_len(text)) for text, w in zip(row, widths, strict=False))
    return "  ".join(padded).rstrip()


def _rows(lock: LockInfo) -> Iterator[list[Cell]]:
    key, waiting = (lock.key, ""), (str(len(lock.waiters) or ""), "")
    if lock.fault is not None:
        yield [key, (f"unreadable: {lock.fault}", "red")]
    elif not lock.holders:
        yield [key, ("free", "dim"), _EMPTY, (str(lock.fence), ""), _EMPTY, _EMPTY, waiting]
    for holder in lock.holders:
        yield [key, *_holder_cells(holder), waiting]


_EMPTY: Cell = ("", "")


def lock_page(lock: LockInfo) -> Iterator[RenderableType]:
    """Yields all that is known of one lock."""
    yield Text.assemble((printable(lock.key), "bold"), ("  " + state_of(lock)))
    if lock.holders:
        table = new_table("Held by", "Mode", "Fence", "Since", "If not renewed", "Note")
        for holder in lock.holders:
            cells = [plain(*cell) for cell in _holder_cells(holder)]
            table.add_row(*cells, plain(note_text(holder)))
        yield table
    if lock.waiters:
        table = new_table("Turn", "Waiting", "Mode", "Since")
        for turn, waiter in enumerate(lock.waiters, 1):
            mode, since = plain(mode_of(waiter)), plain(since_text(waiter.since))
            table.add_row(str(turn), plain(waiter.owner), mode, since)
        yield table
    if lock.history:
        table = new_table("When", "What happened", "Fence")
        for at, what, fence in happenings(lock):
            table.add_row(plain(time_of(at)), plain(what), str(fence))
        yield table


def happenings(lock: LockInfo) -> list[tuple[datetime, str, int]]:
    """Returns when what happened to a lock last, in order: grants that were not released, with
    their beginnings, and the grants of those who hold it now."""
    found = [(past.at, past_text(past), past.fence) for past in lock.history]
    began = [(past.since, past.owner, past.fence) for past in lock.history]
    began += [(one.acquired_at, one.owner, one.fence) for one in lock.holders]
    found += [(at, f"{owner} acquired it", fence) for at, owner, fence in began]
    return sorted(found, key=lambda one: (one[0], one[2]))


def past_text(past: PastInfo) -> str:
    """Returns how a grant ended, in words."""
    if past.what == "expired":
        return f"{past.owner} ran out"
    if past.what == "handed over":
        return f"{past.owner} handed over to {past.by}"
    by = f" by {past.by}" if past.by else ""
    return f"{past.owner} was evicted{by}{': ' if past.reason else ''}{past.reason}"


def state_of(lock: LockInfo, by: str = "") -> str:
    """Returns the state of a lock in a few words."""
    if lock.fault is not None:
        return f"unreadable: {lock.fault}"
    waiting = f", {len(lock.waiters)} waiting" if lock.waiters else ""
    if not lock.holders:
        return f"free (last fence {lock.fence}){waiting}" if lock.fence else f"free{waiting}"
    return f"held by {by}{waiting}" if by else f"held{waiting}"


def holder_line(holder: HolderInfo) -> str:
    """Returns a holder in one line."""
    since = since_text(holder.acquired_at)
    return f"{holder.owner} ({mode_of(holder)}, fence {holder.fence}, since {since})"


def waiter_line(waiter: WaiterInfo) -> str:
    """Returns somebody who waits in one line."""
    return f"{waiter.owner} ({mode_of(waiter)}, since {since_text(waiter.since)})"


def _holder_cells(holder: HolderInfo) -> list[Cell]:
    owner = (holder.owner, "")
    if holder.offered:
        owner = (f"{holder.owner} (handed over, not yet taken)", "yellow")
    left = "" if holder.remaining is None else f"free in {span(holder.remaining)}"
    cells = (mode_of(holder), str(holder.fence), since_text(holder.acquired_at), left)
    return [owner, *((text, "") for text in cells)]


# --- words --------------------------------------------------------------------------------


def plain(text: str = "", style: str = "") -> Text:
    """Returns text of others, without markup and control characters."""
    return Text(printable(text), style)


def span(seconds: float) -> str:
    """Returns a span of time in words."""
    return duration(round(seconds * SECOND))


def mode_of(party: HolderInfo | WaiterInfo) -> str:
    """Returns the mode, or the number of permits if they are counted."""
    return f"one of {party.limit}" if party.limit is not None else party.mode


def note_text(holder: HolderInfo) -> str:
    """Returns the note as name=value pairs."""
    return ", ".join(f"{name}={value}" for name, value in holder.note.items())


def since_text(at: datetime) -> str:
    """Returns a time, and how long ago that is."""
    ago = max(0.0, (datetime.now(UTC) - at).total_seconds())
    return f"{time_of(at)}, for {age(ago)}"


def age(seconds: float) -> str:
    """Returns how long something has lasted, in the one unit that matters."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"


def time_of(at: datetime) -> str:
    """Returns a time in this machine's zone, without the day if that is today."""
    local = at.astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")
