"""Looks at SQLite's rows on behalf of waiting calls.

`PRAGMA data_version` changes when any other connection has written, and takes a few microseconds to
read. Only when it has changed since a key was looked at, its row is read; and its record only if
the row has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.core.contract import Interval
from holdfast.stores.base import entry_from
from holdfast.stores.sqlite.protocol import SQL
from holdfast.stores.sqlite.transport import Connection
from holdfast.stores.waiting.handles import PollResult, poll_result

MOST_SEEN = 10_000
_TURN, _RECORD = SQL["turn"], SQL["load"]


class RowLooker:
    """Has a connection of its own, so that it never waits for a call of the store."""

    def __init__(self, connect: Callable[[], Connection], now: Callable[[], Interval]) -> None:
        self._connect = connect
        self._now = now
        self._connection: Connection | None = None
        # What was seen of each key, and at which `data_version`.
        self._seen: dict[str, tuple[int, PollResult | None]] = {}

    def look(self, keys: Sequence[str]) -> dict[str, PollResult]:
        """Returns what is there now under these keys."""
        if self._connection is None:
            self._connection = self._connect()
        (at,) = self._connection.run("PRAGMA data_version").fetchone()
        if len(self._seen) > MOST_SEEN:
            self._seen = {}
        self._seen.update({key: self._look(self._connection, key, at) for key in keys})
        return {key: seen for key in keys if (seen := self._seen[key][1]) is not None}

    def _look(self, connection: Connection, key: str, at: int) -> tuple[int, PollResult | None]:
        seen_at, seen = self._seen.get(key, (None, None))
        if seen_at == at:
            return at, seen
        now = self._now()
        row = connection.run(_TURN, (key,)).fetchone()
        if row is None:
            return at, None
        version, turn = row
        if seen is not None and seen.version == version and seen.found is not None:
            return at, replace(seen, found=replace(seen.found, now=now))
        row = connection.run(_RECORD, (key,)).fetchone()
        if row is None:
            return at, None
        raw, version = row
        return at, poll_result(entry_from(raw, version, now), turn)

    def pause(self) -> None:
        """Close the file until the next look. A new connection counts `data_version` anew."""
        self._seen = {}
        if self._connection is not None:
            self._connection.pause()

    def close(self) -> None:
        """Close the file."""
        self._seen = {}
        if self._connection is not None:
            self._connection.close()
            self._connection = None
