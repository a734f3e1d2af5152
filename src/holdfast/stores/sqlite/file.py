"""One SQLite file of ours: opening it, its busy times and its errors."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.errors import (
    ForeignStore,
    HoldfastError,
    Misconfigured,
    OutcomeUnknown,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from holdfast.stores.shortage import has_room_for, shortage
from holdfast.stores.sql_files import read_queries

APPLICATION_ID = 0x484F4C44  # "HOLD", in the file's header
SCHEMA = 1
# Every write puts one page into the log: small ones are faster.
PAGE_BYTES = 1024
# A checkpoint waits for the disk, so there is one in a few thousand writes (4 MiB).
CHECKPOINT_PAGES = 4000
# The system has the file in its memory, too: what is in use at a time is a few pages.
CACHE_KIB = 512
# The file, its log, the log's index, and their folder while a file is made in it.
DESCRIPTORS = 4
SQL = read_queries(Path(__file__).with_name("queries.sql"))

# The last one, SQLite's "locking protocol", is a race for the log that was lost too often.
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_HEADER_BYTES = 100
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.0002, 0.005


class Connection:
    """A connection to the file at a path. Its callers see to it that one thread is in it."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s
        self._closed = False
        self._paused = False  # closed, but only until it is next used
        # Of the log, shared by all who have the file open. It lies beside the file, not a link.
        self._index = Path(f"{path.resolve()}-shm")
        self._known_index: tuple[int, int] | None = None
        self._open(str(path))

    def run(
        self, sql: str, values: tuple[Any, ...] = (), *, writing: bool = False
    ) -> sqlite3.Cursor:
        """Execute one statement, and wait while another process writes. Errors are ours.
        The cursor is good until the next call."""
        try:
            return self._cursor.execute(sql, values)
        except sqlite3.Error as exc:
            if self._paused:
                self._resume()
                return self.run(sql, values, writing=writing)
            if _code(exc) not in _BUSY:
                raise self.trouble(exc, writing=writing) from exc
        try:
            return self._run_when_free(sql, values)
        except sqlite3.Error as exc:
            raise self.trouble(exc, writing=writing) from exc

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements, all or none, while nobody else writes."""
        try:
            self.run("BEGIN IMMEDIATE")
            yield
            self.run("COMMIT", writing=True)
        except BaseException:  # an interrupt may have come right after BEGIN
            if self._sqlite.in_transaction:
                self.run("ROLLBACK")
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._closed, self._paused = True, False
        self._let_go()

    def __del__(self) -> None:
        # Nobody refers to it any more. Python would close the file as well, but since 3.13 not
        # without a ResourceWarning.
        with suppress(AttributeError, sqlite3.Error):  # it was never open
            self._sqlite.close()

    def pause(self) -> None:
        """Let go of the file until it is next used.

        SQLite's books on who has which file open and locked are copied by a fork, but the
        locks are not: a connection that is open across it would be trusted by the child's
        own ones, and the file's log could be taken away from under them.
        """
        self._paused = not self._closed
        self._let_go()

    def _let_go(self) -> None:
        self._known_index = None
        # SQLite keeps the file open for as long as a statement has an answer to give.
        with suppress(sqlite3.ProgrammingError):  # it was closed before
            self._cursor.close()
        self._sqlite.close()

    def note_index(self) -> None:
        """From now on, notice if the log is taken away."""
        self.run("PRAGMA data_version").fetchone()  # has it opened
        self._known_index = identity(self._index)

    def is_cut_off(self) -> bool:
        """Whether the log was taken away, so that nobody else sees what is written here."""
        known = self._known_index
        return known is not None and identity(self._index) != known

    def _resume(self) -> None:
        self._open(f"{self.path.as_uri()}?mode=rw")  # and not a new file
        try:
            self.note_index()
        except BaseException:
            self.pause()  # else nobody would notice any more that the log was taken away
            raise

    def _open(self, name: str) -> None:
        try:
            self._sqlite = sqlite3.connect(
                name, timeout=0, isolation_level=None, check_same_thread=False,
                uri=name.startswith("file:"),
            )  # fmt: skip
        except sqlite3.Error as exc:
            raise self.trouble(exc, writing=False) from exc
        # What somebody else has put there need not be text, although SQLite calls it so.
        self._sqlite.text_factory = bytes
        self._cursor = self._sqlite.cursor()
        was_paused, self._paused = self._paused, False
        try:
            self.run("PRAGMA synchronous = NORMAL")
            self.run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            self.run(f"PRAGMA cache_size = -{CACHE_KIB}")
        except BaseException:
            self._let_go()  # nobody else has this connection yet
            self._paused = was_paused
            raise

    def _run_when_free(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        # SQLite's own busy handler sleeps for up to 100 ms at a time; a lock changes hands
        # in a tenth of a millisecond. Random naps keep many processes out of step.
        ends_at = time.monotonic() + self._busy_s
        nap = _SHORTEST_NAP_S
        while True:
            time.sleep(random.uniform(nap / 2, nap))
            nap = min(nap * 1.5, _LONGEST_NAP_S)
            try:
                return self._cursor.execute(sql, values)
            except sqlite3.OperationalError as exc:
                if _code(exc) not in _BUSY or time.monotonic() > ends_at:
                    raise

    def trouble(self, exc: sqlite3.Error, *, writing: bool) -> HoldfastError:
        """The driver's error in our words."""
        code, path = _code(exc), self.path
        if code in _BUSY:
            return Unavailable(f"{path} was kept locked by others for {self._busy_s:g} s.")
        if code == sqlite3.SQLITE_READONLY:
            return StoreReadOnly(f"{path} cannot be written: check its owner and permissions.")
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{path} cannot grow: the disk is full. Free some space.")
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return _not_opened(path, exc)
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return ForeignStore(f"{path} is not a sound SQLite file ({exc}); it was left alone.")
        if code == sqlite3.SQLITE_IOERR:
            return OutcomeUnknown(f"{path}: {exc}") if writing else Unavailable(f"{path}: {exc}")
        if isinstance(exc, sqlite3.ProgrammingError):
            return Unavailable(f"{path} was closed meanwhile.")
        return Misconfigured(f"{path}: {exc}")


def _not_opened(path: Path, exc: sqlite3.Error) -> HoldfastError:
    """SQLite says that it cannot open a file, and not why: look for the cause."""
    if not has_room_for(DESCRIPTORS):
        return shortage(str(path))
    if _can_be_opened(path):
        return Unavailable(f"{path} could not be opened just then ({exc}): try again.")
    return Misconfigured(
        f"{path} cannot be opened ({exc}): it must not be a folder, its folder must "
        f"exist, and both must be yours to write."
    )


def _can_be_opened(path: Path) -> bool:
    try:
        real = path.resolve(strict=path.exists())
        there = real.is_file() if real.exists() else real.parent.is_dir()
        ours = (real, real.parent, Path(f"{real}-wal"), Path(f"{real}-shm"))
        return there and all(os.access(one, os.R_OK | os.W_OK) for one in ours if one.exists())
    except (OSError, RuntimeError):  # its name is too long, or leads round in a circle
        return False


def _code(exc: sqlite3.Error) -> int:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


# --- making it ours -------------------------------------------------------------------------


def check_length(path: Path) -> None:
    """Refuse what is too short for an SQLite file: SQLite takes a very short one for an empty one.

    The file must not be opened to look into it: on POSIX systems whoever closes it ends all locks
    that SQLite has on it in this process, be it for another client.
    """
    try:
        length = path.stat().st_size
    except OSError:
        return  # it does not exist, or SQLite will say why it cannot be opened
    if 0 < length < _HEADER_BYTES:
        raise ForeignStore(f"{path} is not an SQLite file; it was left alone: name another path.")


def prepare(path: Path, connection: Connection) -> None:
    """Create our tables in a new file; refuse what is not ours."""
    if not _is_ours(path, connection):
        connection.run(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.run("PRAGMA journal_mode = WAL")
        with connection.transaction():
            if not _is_ours(path, connection):  # or somebody was faster
                connection.run(SQL["create_meta"])
                connection.run(SQL["create_locks"])
                connection.run(f"PRAGMA user_version = {SCHEMA}")
                connection.run(f"PRAGMA application_id = {APPLICATION_ID}")


def _is_ours(path: Path, connection: Connection) -> bool:
    # In this order: tables come together with our mark, so whoever sees them first sees it, too.
    (tables,) = connection.run(SQL["count_tables"]).fetchone()
    (application,) = connection.run("PRAGMA application_id").fetchone()
    (schema,) = connection.run("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID:
        if schema > SCHEMA:
            raise Misconfigured(
                f"{path} has the newer schema {schema} (this release knows {SCHEMA}): "
                f"upgrade holdfast."
            )
        return True
    if application or tables:
        raise ForeignStore(
            f"{path} is an SQLite file that was not made by Holdfast, and was left alone: "
            f"name another path."
        )
    return False


def identity(path: Path) -> tuple[int, int] | None:
    """Which file is at this path; None: none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
