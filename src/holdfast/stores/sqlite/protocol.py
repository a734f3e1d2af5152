"""What the store asks of SQLite, and what the rows mean. Nothing here touches the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.commands import Wake
from holdfast.core.contract import Entry, Interval, Page, Version
from holdfast.stores.base import entry_from
from holdfast.stores.sql_files import read_queries

SQL = read_queries(Path(__file__).with_name("queries.sql"))
LOAD = SQL["load"]
_INSERT, _UPDATE, _DELETE = SQL["insert"], SQL["update"], SQL["delete"]

Statement = tuple[str, tuple[Any, ...]]


def swap_statement(
    key: str, version: Version, raw: str | None, written: int, wake: Wake
) -> Statement:
    """Returns the statement of a swap: it changes one row, or none if the version differs."""
    turn = 1 if wake else 0
    if raw is None:
        return _DELETE, (key, version)
    if version is None:
        return _INSERT, (key, written, turn, raw)
    return _UPDATE, (written, turn, raw, key, version)


def entry_of(row: Sequence[Any] | None, now: Interval) -> Entry:
    """Returns what a row of `load` says; None means there is no record."""
    return Entry(now=now) if row is None else entry_from(row[0], row[1], now)


def page_statement(prefix: str, cursor: str | None, limit: int) -> Statement:
    """Returns the statement for a page of a listing. A cursor is the key that was listed last."""
    name, start = ("first_page", prefix) if cursor is None else ("next_page", cursor)
    return SQL[name], (start.encode(errors="surrogateescape"), limit)


def page_of(rows: Sequence[Any], prefix: str, limit: int, now: Interval) -> Page:
    """Returns the page that the rows are. A key that is not text was written by somebody else:
    nobody can name it, so it is left out, but the cursor can be such a key."""
    found = [(key.decode(errors="surrogateescape"), raw, version) for key, raw, version in rows]
    entries = tuple(
        (key, entry_from(raw, version, now))
        for key, raw, version in found
        if key.startswith(prefix) and _is_text(key)
    )
    goes_on = len(found) == limit and found[-1][0].startswith(prefix)
    return Page(entries, found[-1][0] if goes_on else None)


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
