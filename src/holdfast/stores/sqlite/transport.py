"""One connection to an SQLite file: opens it, waits while others write, survives forks."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.stores.sqlite.errors import BUSY, code_of, error_for

# A checkpoint waits for the disk, so there is one in a few thousand writes (4 MiB).
CHECKPOINT_PAGES = 4000
# The system caches the file too, and only a few pages are in use at a time.
CACHE_KIB = 512
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.0002, 0.005


class Connection:
    """A connection to the file at a path. Only one thread at a time may use it."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s
        self.waits = True  # for other writers; otherwise its user does
        self._closed = False
        self._paused = False  # closed, but only until it is next used
        # The index of the log, shared by all who have the file open. It lies beside the file
        # itself, not beside a link to it.
        self._index = Path(f"{path.resolve()}-shm")
        self._known_index: tuple[int, int] | None = None
        self._open(str(path))

    def run(
        self, sql: str, values: tuple[Any, ...] = (), *, writing: bool = False
    ) -> sqlite3.Cursor:
        """Execute one statement. While another process writes, wait, or raise `FileBusy` if this
        connection does not wait. Raises our errors. Returns a cursor, which is valid until the
        next call."""
        try:
            return self._cursor.execute(sql, values)
        except sqlite3.Error as exc:
            if self._paused:
                self._resume()
                return self.run(sql, values, writing=writing)
            if code_of(exc) not in BUSY or not self.waits:
                raise self._error(exc, writing=writing) from exc
        try:
            return self._run_when_free(sql, values)
        except sqlite3.Error as exc:
            raise self._error(exc, writing=writing) from exc

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements of the block as one transaction: all of them or none."""
        try:
            self.run("BEGIN IMMEDIATE")
            yield
            self.run("COMMIT", writing=True)
        except BaseException:  # an interrupt may have come right after BEGIN
            with suppress(sqlite3.ProgrammingError):  # the file was closed meanwhile
                if self._sqlite.in_transaction:
                    self.run("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._closed, self._paused = True, False
        self._close_file()

    def __del__(self) -> None:
        # Nobody refers to it any more. Python would close the file as well, but since 3.13 not
        # without a ResourceWarning.
        with suppress(AttributeError, sqlite3.Error):  # it was never open
            self._sqlite.close()

    def is_open(self) -> bool:
        """Whether the file is open now."""
        return not (self._closed or self._paused)

    def pause(self) -> None:
        """Close the file until it is next used.

        A fork copies SQLite's table of files that are open and locked, but not the locks
        themselves. If a connection stayed open across a fork, the child's own connections would
        rely on locks that it does not have, and could lose the file's log.
        """
        self._paused = not self._closed
        self._close_file()

    def _close_file(self) -> None:
        self._known_index = None
        # SQLite keeps the file open as long as a statement has rows to return.
        with suppress(sqlite3.ProgrammingError):  # it was closed before
            self._cursor.close()
        self._sqlite.close()

    def note_index(self) -> None:
        """Remember which log this is, for `is_cut_off`."""
        self.run("PRAGMA data_version").fetchone()  # opens the log
        self._known_index = identity(self._index)

    def is_cut_off(self) -> bool:
        """Whether the log was deleted, so that nobody else sees what this connection writes."""
        known = self._known_index
        return known is not None and identity(self._index) != known

    def _resume(self) -> None:
        self._open(f"{self.path.as_uri()}?mode=rw")  # and not a new file
        try:
            self.note_index()
        except BaseException:
            self.pause()  # otherwise `is_cut_off` would never be True again
            raise

    def _open(self, name: str) -> None:
        try:
            self._sqlite = sqlite3.connect(
                name, timeout=0, isolation_level=None, check_same_thread=False,
                uri=name.startswith("file:"),
            )  # fmt: skip
        except sqlite3.Error as exc:
            raise self._error(exc, writing=False) from exc
        # What somebody else wrote may not be UTF-8, although SQLite calls it text.
        self._sqlite.text_factory = bytes
        self._cursor = self._sqlite.cursor()
        was_paused, self._paused = self._paused, False
        try:
            self.run("PRAGMA synchronous = NORMAL")
            self.run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            self.run(f"PRAGMA cache_size = -{CACHE_KIB}")
        except BaseException:
            self._close_file()  # nobody else has this connection yet
            self._paused = was_paused
            raise

    def _run_when_free(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        ends_at = time.monotonic() + self._busy_s
        for nap in naps():
            time.sleep(nap)
            try:
                return self._cursor.execute(sql, values)
            except sqlite3.OperationalError as exc:
                if code_of(exc) not in BUSY or time.monotonic() > ends_at:
                    raise
        raise AssertionError("naps have no end")

    def _error(self, exc: sqlite3.Error, *, writing: bool) -> HoldfastError:
        return error_for(exc, self.path, writing=writing)


def naps() -> Iterator[float]:
    """Yields, without an end, how long to sleep before the file is tried again. SQLite's own busy
    handler sleeps for up to 100 ms at a time, but a lock changes hands in a tenth of a millisecond.
    Random naps keep many processes from trying at once."""
    nap = _SHORTEST_NAP_S
    while True:
        yield random.uniform(nap / 2, nap)
        nap = min(nap * 1.5, _LONGEST_NAP_S)


def identity(path: Path) -> tuple[int, int] | None:
    """Returns which file is at this path; None if there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
