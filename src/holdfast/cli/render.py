"""Locks for people: tables, and words for times. For programs: JSON, one value per line."""

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

from holdfast.api.info import HolderInfo, LockInfo, WaiterInfo
from holdfast.core.records import SECOND
from holdfast.observe.log import duration, printable

T = TypeVar("T")

# A listing for people comes in tables of this many locks, so that it streams.
ROWS = 200
# Piped into another program nothing is folded or cut.
WIDE = 10_000
# A narrower terminal has no room for fences beside keys and owners.
ROOMY = 100
# Nobody reads a number that is folded: what has to be folded are keys, owners and notes.
_UNFOLDED = {"Mode", "Fence", "Since", "Runs out in", "Waiting", "Turn"}


def print_json(value: Any) -> None:
    """One line of JSON, at once. It may go to a terminal: what could move its cursor, or turn
    its text around, is escaped, as JSON itself does with some of it."""
    text = msgspec.json.encode(value).decode()
    if not text.isprintable():
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    click.echo(text.encode())


class Paper(Console):
    """Where tables go. What becomes of a reader who left is decided in one place, not here."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """A paper as wide as the terminal."""
    shown = Paper(highlight=False)
    return shown if shown.is_terminal else Paper(highlight=False, width=WIDE)


def new_table(*columns: str, title: str | None = None) -> Table:
    """An empty table in the style of all our tables."""
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
    """The items, so many at a time."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


# --- locks --------------------------------------------------------------------------------


COLUMNS = ["Key", "Held by", "Mode", "Fence", "Since", "Runs out in", "Waiting"]

# What is in a cell, and its style.
Cell = tuple[str, str]


def lock_table(locks: Iterable[LockInfo], width: int) -> Table:
    """One line for each holder, as far as they fit into this width."""
    shown = [column for column in COLUMNS if width >= ROOMY or column != "Fence"]
    table = new_table(*shown)
    for lock in locks:
        for row in _rows(lock):
            cells = dict(zip(COLUMNS, row, strict=False))
            table.add_row(*(plain(*cells.get(column, ("", ""))) for column in shown))
    return table


def lock_lines(locks: Iterable[LockInfo]) -> Iterator[str]:
    """The same as plain text, for a pipe or a file: nothing is folded, and a hundred thousand
    locks take seconds, for which rich's tables take minutes. Columns become wider as they must."""
    widths, head = [0] * len(COLUMNS), [COLUMNS]
    for some in chunks(locks, ROWS):
        cells = (row for lock in some for row in _rows(lock))
        rows = [*head, *([printable(text) for text, _ in row] for row in cells)]
        for row in rows:
            if len(row) == len(COLUMNS):  # the others say what is wrong, and are as long as that
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
    """Everything about one lock."""
    yield Text.assemble((printable(lock.key), "bold"), ("  " + state_of(lock)))
    if lock.holders:
        table = new_table("Held by", "Mode", "Fence", "Since", "Runs out in", "Note")
        for holder in lock.holders:
            cells = [plain(*cell) for cell in _holder_cells(holder)]
            table.add_row(*cells, plain(note_text(holder)))
        yield table
    if lock.waiters:
        table = new_table("Turn", "Waiting", "Mode", "Since")
        for turn, waiter in enumerate(lock.waiters, 1):
            mode, since = plain(mode_of(waiter)), plain(time_of(waiter.since))
            table.add_row(str(turn), plain(waiter.owner), mode, since)
        yield table


def state_of(lock: LockInfo, by: str = "") -> str:
    """A lock in a word or two, or also by whom it is held."""
    if lock.fault is not None:
        return f"unreadable: {lock.fault}"
    waiting = f", {len(lock.waiters)} waiting" if lock.waiters else ""
    if not lock.holders:
        return f"free (last fence {lock.fence}){waiting}" if lock.fence else f"free{waiting}"
    return f"held by {by}{waiting}" if by else f"held{waiting}"


def holder_line(holder: HolderInfo) -> str:
    """A holder in one line."""
    since = time_of(holder.acquired_at)
    return f"{holder.owner} ({mode_of(holder)}, fence {holder.fence}, since {since})"


def _holder_cells(holder: HolderInfo) -> list[Cell]:
    owner = (holder.owner, "")
    if holder.offered:
        owner = (f"{holder.owner} (handed over, not yet taken)", "yellow")
    left = "" if holder.remaining is None else span(holder.remaining)
    cells = (mode_of(holder), str(holder.fence), time_of(holder.acquired_at), left)
    return [owner, *((text, "") for text in cells)]


# --- words --------------------------------------------------------------------------------


def plain(text: str = "", style: str = "") -> Text:
    """Text by others, as it is."""
    return Text(printable(text), style)


def span(seconds: float) -> str:
    """A span of time."""
    return duration(round(seconds * SECOND))


def mode_of(party: HolderInfo | WaiterInfo) -> str:
    """The mode, with the number of permits if they are counted."""
    return f"one of {party.limit}" if party.limit is not None else party.mode


def note_text(holder: HolderInfo) -> str:
    """The note as name=value pairs."""
    return ", ".join(f"{name}={value}" for name, value in holder.note.items())


def time_of(at: datetime) -> str:
    """A time in this machine's zone; without the day if that is today."""
    local = at.astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")
