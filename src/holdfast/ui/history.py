"""What the page has seen over time, in an SQLite file or in memory.

1. A *span* is somebody who held a lock or waited for it, from when to when. One without an end was
   still there at the last look.
2. A *gap* is a time in which nobody looked, or could not: between two runs of the page, or while
   the store was away. What happened in it is not known.
3. A grant that came and went between two looks has left a larger fence behind, and fences start at
   the store's clock: so it is known when there was one, though not whose.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.observe.log import logger
from holdfast.ui.seen import Json

# A look that comes later than this after the one before leaves a gap.
GAP_S = 10.0
# How often old rows are dropped.
PRUNE_S = 300.0
MOST_ROWS = 500_000
# So many are returned at most for one question.
MOST_SHOWN = 20_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spans (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, kind TEXT NOT NULL, owner TEXT NOT NULL,
    mode TEXT NOT NULL, fence INTEGER, started REAL NOT NULL, ended REAL, seen REAL NOT NULL,
    ending TEXT NOT NULL DEFAULT '', detail TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS spans_by_end ON spans (ended);
CREATE TABLE IF NOT EXISTS unseen (key TEXT NOT NULL, fence INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS gaps (started REAL NOT NULL, ended REAL NOT NULL, why TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS looks (only INTEGER PRIMARY KEY CHECK (only = 1), at REAL NOT NULL);
"""

_Party = tuple[str, Any]  # hold or wait, and which of them


class History:
    """Remembers spans, gaps and unseen grants. Safe for threads."""

    def __init__(self, path: Path | None = None, keep_s: float = 7 * 86400.0) -> None:
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._file = sqlite3.connect(path or ":memory:", check_same_thread=False)
        self._file.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
        self._stopped = "the page was not running"
        self._broken = False  # the last look could not be written
        self._pruned_at = 0.0
        self._resume()

    def _resume(self) -> None:
        """Take up what is in the file."""
        self._open: dict[str, dict[_Party, int]] = {}  # by key, the spans that have not ended
        self._fences: dict[str, int] = {}  # of each key that is there, the last one seen
        row = self._file.execute("SELECT at FROM looks").fetchone()
        self._last_look: float | None = row and row[0]
        if row:  # whatever was open then has ended in the gap, or is found anew
            self._file.execute("UPDATE spans SET ended = seen, ending = '?' WHERE ended IS NULL")
        # What was open when the page last wrote, and may still be there.
        self._before: dict[tuple[Any, ...], tuple[int, float]] = {
            (key, kind, owner, fence): (number, started)
            for number, key, kind, owner, fence, started in self._file.execute(
                "SELECT id, key, kind, owner, fence, started FROM spans WHERE ending = '?'"
            )
        }

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    # --- write --------------------------------------------------------------------------------

    def failed(self, why: str) -> None:
        """Note that a look was not possible."""
        with self._lock:
            self._stopped = why

    def saw(self, locks: Iterable[Json], at: float) -> None:
        """Note all locks as they were seen at this time. If that cannot be written, it is a gap."""
        with self._lock:
            try:
                with self._file:
                    if self._broken:
                        self._resume()
                    self._note_look(locks, at)
            except sqlite3.Error as exc:  # a full disk, or another program has locked the file
                if not self._broken:
                    logger.warning("The history of the page cannot be written: %s", exc)
                self._broken = True
                self._stopped = f"the history could not be written: {exc}"
            else:
                self._broken = False

    def _note_look(self, locks: Iterable[Json], at: float) -> None:
        self._note_gap(at)
        present = set()
        for lock in locks:
            present.add(lock["key"])
            self._note_lock(lock, at)
        for key in [key for key in self._open if key not in present]:
            for party in list(self._open[key]):
                self._end(key, party, at, at, {})
        self._fences = {key: self._fences[key] for key in present}
        self._file.execute(
            "INSERT INTO looks VALUES (1, ?) ON CONFLICT (only) DO UPDATE SET at = excluded.at",
            (at,),
        )
        self._prune(at)

    def _note_gap(self, at: float) -> None:
        before, why = self._last_look, self._stopped
        self._last_look, self._stopped = at, ""
        if before is not None and (why or at - before > GAP_S):
            why = why or "the page was too slow"
            self._file.execute("INSERT INTO gaps VALUES (?, ?, ?)", (before, at, why))

    def _note_lock(self, lock: Json, at: float) -> None:
        key = lock["key"]
        self._note_unseen(lock, at)
        present: dict[_Party, Json] = {("hold", one["fence"]): one for one in lock["holders"]}
        present |= {("wait", (one["owner"], one["since"])): one for one in lock["waiters"]}
        before = self._open.get(key, {})
        # Whoever held it alone before an exclusive holder had left when that one came.
        alone = [one["since"] for one in lock["holders"] if one["mode"] == "exclusive"]
        left_by = min([at, *alone])
        past = {one["fence"]: one for one in lock["history"]}
        for party in [one for one in before if one not in present]:
            kind, which = party
            if kind == "hold":
                self._end(key, party, left_by, at, past.get(which, {}))
            else:
                self._end(key, party, at, at, {})
        for party, one in present.items():
            if party not in self._open.get(key, {}):
                self._begin(key, party, one, at)

    def _note_unseen(self, lock: Json, at: float) -> None:
        key, fence = lock["key"], lock["fence"]
        before = self._fences.get(key)
        self._fences[key] = fence
        if before is None or fence <= before:
            return
        explained = any(one["fence"] > before for one in lock["holders"])
        evicted = any(
            one["what"] == "evicted" and one["at"] >= before / 1e6 for one in lock["history"]
        )
        if not explained and not evicted:
            granted = min(fence / 1e6, at)
            self._file.execute("INSERT INTO unseen VALUES (?, ?, ?)", (key, fence, granted))

    def _begin(self, key: str, party: _Party, one: Json, at: float) -> None:
        kind, _ = party
        opened = self._open.setdefault(key, {})
        number, started = self._before.pop((key, kind, one["owner"], one.get("fence")), (0, 0.0))
        if number and abs(started - one["since"]) < 1:  # it was there before the page was restarted
            self._file.execute("UPDATE spans SET ended = NULL, ending = '' WHERE id = ?", (number,))
            opened[party] = number
            return
        found = self._file.execute(
            "INSERT INTO spans (key, kind, owner, mode, fence, started, seen) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, kind, one["owner"], one["mode"], one.get("fence"), one["since"], at),
        )
        opened[party] = found.lastrowid or 0

    def _end(self, key: str, party: _Party, ended: float, at: float, past: Json) -> None:
        ending = past.get("what", "released" if party[0] == "hold" else "left")
        by = past.get("by", "")
        detail = f"by {by}: {past['reason']}" if past.get("reason") else by
        if past.get("what") == "evicted":
            ended = min(ended, past["at"])
        opened = self._open[key]
        number = opened.pop(party)
        if not opened:
            del self._open[key]
        self._file.execute(
            "UPDATE spans SET ended = max(?, started), seen = ?, ending = ?, detail = ? "
            "WHERE id = ?",
            (ended, at, ending, detail, number),
        )

    def _prune(self, at: float) -> None:
        if at - self._pruned_at < PRUNE_S:
            return
        self._pruned_at = at
        oldest = at - self._keep_s
        self._file.execute("DELETE FROM spans WHERE ended < ?", (oldest,))
        self._file.execute("DELETE FROM unseen WHERE at < ?", (oldest,))
        self._file.execute("DELETE FROM gaps WHERE ended < ?", (oldest,))
        self._file.execute(
            "DELETE FROM spans WHERE ended IS NOT NULL AND id <= "
            "(SELECT max(id) FROM spans) - ?", (MOST_ROWS,)
        )  # fmt: skip
        self._file.execute(
            "DELETE FROM unseen WHERE rowid <= (SELECT max(rowid) FROM unseen) - ?", (MOST_ROWS,)
        )

    # --- read ---------------------------------------------------------------------------------

    def between(self, since: float, until: float, prefix: str = "") -> Json:
        """Returns the spans, unseen grants and gaps of a time, the latest first."""
        like = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        with self._lock:
            spans = self._file.execute(
                "SELECT key, kind, owner, mode, fence, started, ended, ending, detail FROM spans "
                "WHERE started <= ? AND (ended IS NULL OR ended >= ?) "
                "AND key LIKE ? ESCAPE '\\' ORDER BY started DESC LIMIT ?",
                (until, since, like, MOST_SHOWN + 1),
            ).fetchall()
            unseen = self._file.execute(
                "SELECT key, fence, at FROM unseen WHERE at BETWEEN ? AND ? "
                "AND key LIKE ? ESCAPE '\\' ORDER BY at DESC LIMIT ?",
                (since, until, like, MOST_SHOWN),
            ).fetchall()
            gaps = self._file.execute(
                "SELECT started, ended, why FROM gaps WHERE started <= ? AND ended >= ?",
                (until, since),
            ).fetchall()
        names = ("key", "kind", "owner", "mode", "fence", "start", "end", "ending", "detail")
        return {
            "spans": [dict(zip(names, row, strict=True)) for row in spans[:MOST_SHOWN]],
            "unseen": [dict(zip(("key", "fence", "at"), row, strict=True)) for row in unseen],
            "gaps": [dict(zip(("start", "end", "why"), row, strict=True)) for row in gaps],
            "cut": len(spans) > MOST_SHOWN,
            "observed_since": self._observed_since(),
        }

    def _observed_since(self) -> float | None:
        with self._lock:
            row = self._file.execute(
                "SELECT min(at) FROM (SELECT min(seen) AS at FROM spans UNION ALL "
                "SELECT min(started) FROM gaps UNION ALL SELECT min(at) FROM looks)"
            ).fetchone()
        return row[0] if row else None
