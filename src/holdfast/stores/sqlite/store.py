"""The SQLite store: compare-and-swap on one table, each swap a single statement.

Each statement is a transaction of its own, so a process that dies leaves nothing locked. With
write-ahead logging, readers and the one writer do not wait for each other. A power cut may undo
the last few writes, but then all holders on this machine are gone as well.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import (
    Amended,
    Change,
    Conflict,
    Entry,
    Facts,
    Interval,
    Page,
    Swapped,
    Version,
)
from holdfast.core.effects import Swap
from holdfast.core.records import NEVER, SECOND, Micros, Record, encode
from holdfast.core.steps import not_written
from holdfast.errors import BadOption, HoldfastError, Misconfigured, StoreReadOnly, Unavailable
from holdfast.runtime import fork_hooks
from holdfast.stores.base import Outcome
from holdfast.stores.deadlines import seconds_left
from holdfast.stores.sqlite.clock import Clock
from holdfast.stores.sqlite.connect import check_options, options_of, path_of
from holdfast.stores.sqlite.errors import FileBusy
from holdfast.stores.sqlite.mounts import check_place
from holdfast.stores.sqlite.notify import RowLooker
from holdfast.stores.sqlite.protocol import (
    LOAD,
    entry_of,
    page_of,
    page_statement,
    swap_statement,
)
from holdfast.stores.sqlite.setup import check_length, create_tables
from holdfast.stores.sqlite.transport import Connection, identity, naps
from holdfast.stores.waiting.local_poller import LocalPoller, LocalStore

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

R = TypeVar("R")

BUSY_S = 5.0
FILE_CHECKED_FOR: Micros = SECOND // 10

# In a forked child: stores whose file was open during the fork. To close it, or to open the same
# file again, would rely on SQLite's copied table of the parent's locks.
_open_across_a_fork: list[SQLiteStore] = []


class SQLiteStore(LocalStore):
    """All processes that open the same file share its locks."""

    facts = Facts(
        name="sqlite", linearizable=True, clock="host", reach="host", wakeup="poll",
        durable=True, amends=True, batch=100,
        caveats=(
            "One machine only: never put the file on a network file system.",
            "After a power cut the last writes may be missing; no holder survives one either.",
        ),
    )  # fmt: skip

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_s: float = BUSY_S,
        one_machine: bool = False,
    ) -> None:
        if not busy_s > 0:
            raise BadOption("busy_s is how many seconds to wait while others write: above 0.")
        self.path = Path(path).expanduser().absolute()
        self._busy_s = busy_s
        self._one_machine = one_machine
        self._lock = threading.Lock()
        check_place(self.path, one_machine=one_machine)
        check_length(self.path)
        _check_not_open_across_a_fork(self.path)
        self._checked_at: Micros = 0
        looker = RowLooker(lambda: Connection(self.path, busy_s), self._now)
        self._poller = LocalPoller(looker)
        self._paused = False
        self._forking: int | None = None  # the id of the process that forks with the file open
        with fork_hooks.held_off():
            self._open()
            fork_hooks.register_store(self)

    def _open(self) -> None:
        self._connection = Connection(self.path, self._busy_s)
        try:
            create_tables(self._connection)
            self._connection.note_index()
            self._clock = Clock(self._connection)
        except BaseException:
            self._connection.close()
            raise
        self._identity = identity(self.path)
        self._connection.waits = False  # `_when_free` does

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> SQLiteStore:
        """`sqlite:///absolute/path`, `sqlite:///~/in/home` or `sqlite:relative/path`."""
        return cls.at(path_of(url), **{**options_of(url), **options})

    @classmethod
    def at(cls, path: str | os.PathLike[str], **options: Any) -> SQLiteStore:
        """Open the store at a path, with the options of `connect`."""
        return cls(path, **check_options(options))

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """Run one SELECT."""
        return self._when_free(by, lambda: self._load(key))

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Run one INSERT, UPDATE or DELETE; after a conflict also a SELECT."""
        try:
            outcome = self._when_free(by, lambda: self._swap(key, version, record, wake))
        except StoreReadOnly:
            self._open_anew()
            raise
        if wake:
            self._poller.notify(key, wake, record if isinstance(outcome, Swapped) else None)
        return outcome

    def swap_many(self, swaps: Sequence[Swap], by: Micros = NEVER) -> list[Outcome | Exception]:
        """Run many swaps in one transaction: they wait only once for other writers."""
        try:
            outcomes = self._when_free(by, lambda: self._swap_all(swaps))
        except HoldfastError as trouble:
            if isinstance(trouble, StoreReadOnly):
                self._open_anew()
            return [trouble] * len(swaps)
        for swap in swaps:
            if swap.wake:
                self._poller.notify(swap.key, swap.wake)
        return outcomes

    def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """Look, decide, and write if the record is still the same. If it is not, do all of that in
        one transaction, which keeps all other writers out."""
        try:
            amended = self._when_free(by, lambda: self._amend(key, change))
        except StoreReadOnly:
            self._open_anew()
            raise
        if amended.decision.wake:
            self._poller.notify(key, amended.decision.wake, amended.decision.record)
        return amended

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """Run one SELECT on the primary key."""
        sql, values = page_statement(prefix, cursor, limit)

        def read() -> Page:
            self._check_file(self._clock.now())
            rows = self._connection.run(sql, values).fetchall()
            return page_of(rows, prefix, limit, self._now())

        return self._when_free(by, read)

    def close(self) -> None:
        """Close the file."""
        self._poller.close()
        with self._lock:
            self._connection.close()

    def pause(self) -> None:
        """Close the file before a fork, and let nobody open it."""
        self._forking = os.getpid()  # unless nothing is open in the end
        # With a timeout: a signal handler may fork in the middle of a call of this very thread.
        self._paused = self._lock.acquire(timeout=self._busy_s)
        if self._paused:
            self._connection.pause()
            self._checked_at = 0
        if self._poller.pause(self._busy_s) and self._paused:
            self._forking = None

    def resume(self) -> None:
        """Go on after a fork. The file is opened again when it is next used."""
        if self._forking not in (None, os.getpid()):
            _open_across_a_fork.append(self)
        self._poller.resume()
        if self._paused:
            self._paused = False
            self._lock.release()

    def abandon(self) -> None:
        """In a forked child: never open the file again."""
        if self._connection.is_open():  # nobody has told us of the fork, such as uWSGI
            _open_across_a_fork.append(self)
        fork_hooks.forget_store(self)

    def for_child(self) -> SQLiteStore:
        """Returns a store that opens the file anew."""
        return type(self)(self.path, busy_s=self._busy_s, one_machine=self._one_machine)

    def _open_anew(self) -> None:
        """Open the file again when it is next used. SQLite opens a file that it may not write for
        reading only, and does not notice when the permissions are corrected."""
        with fork_hooks.held_off():
            self.pause()
            self.resume()

    def _when_free(self, by: Micros, call: Callable[[], R]) -> R:
        """Run a call with the connection, and wait while another process writes."""
        try:
            with self._lock:
                return call()
        except FileBusy as busy:
            first = busy
        return self._retry(by, call, first)

    def _retry(self, by: Micros, call: Callable[[], R], busy: FileBusy) -> R:
        """Try a call again and again while another process writes. The naps in between are without
        the lock, so that no thread waits for another one's nap."""
        wait_s = max(0.0, min(self._busy_s, seconds_left(by)))
        ends_at = time.monotonic() + wait_s
        for nap in naps():
            if time.monotonic() >= ends_at:
                why = f"Others kept {self.path} locked for {wait_s:.3g} s."
                raise Unavailable(why) from busy.__cause__
            time.sleep(nap)
            try:
                with self._lock:
                    return call()
            except FileBusy as again:
                busy = again
        raise AssertionError("naps have no end")

    def _swap_all(self, swaps: Sequence[Swap]) -> list[Outcome | Exception]:
        with self._connection.transaction():
            return [self._swap(swap.key, swap.version, swap.record, swap.wake) for swap in swaps]

    def _amend(self, key: str, change: Change) -> Amended:
        # Mostly nobody else writes between two statements, and for a mere look none is kept out.
        amended = self._look_and_write(key, change)
        if amended is None:
            with self._connection.transaction():
                amended = self._look_and_write(key, change)
        if amended is None:
            raise not_written(key)
        return amended

    def _look_and_write(self, key: str, change: Change) -> Amended | None:
        """Returns None if the record was another one when it was to be written."""
        self._time_in_file()
        entry = self._look(key)
        decision = change(entry)
        if decision.record is None:
            return Amended(decision, entry)
        written = self._write(key, entry.version, decision.record, decision.wake)
        if written is None:
            return None
        return Amended(decision, Entry(decision.record, written.version, entry.now))

    def _swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Outcome:
        return self._write(key, version, record, wake) or Conflict(self._load(key))

    def _write(
        self, key: str, version: Version, record: Record | None, wake: Wake
    ) -> Swapped | None:
        """Returns None if the version is another one."""
        now = self._time_in_file()
        written = now if version is None or now > version else version + 1
        raw = None if record is None else encode(record).decode()
        sql, values = swap_statement(key, version, raw, written, wake)
        if self._connection.run(sql, values, writing=True).rowcount != 1:
            return None
        return Swapped(None if raw is None else written, Interval(now, now))

    def _time_in_file(self) -> Micros:
        """Returns the time. Now and then checks that the file is still the one that was opened."""
        now = self._clock.now()
        if not 0 <= now - self._checked_at < FILE_CHECKED_FOR:
            self._check_file(now)
        return now

    def _load(self, key: str) -> Entry:
        self._check_file(self._clock.now())
        return self._look(key)

    def _look(self, key: str) -> Entry:
        row = self._connection.run(LOAD, (key,)).fetchone()
        return entry_of(row, self._now())

    def _now(self) -> Interval:
        at = self._clock.now()
        return Interval(at, at)

    def _check_file(self, now: Micros) -> None:
        # An open file stays usable after it was deleted, but nobody else sees the locks in it.
        # This check takes a third of the time of a swap, so not every swap makes it.
        if identity(self.path) != self._identity:
            raise Misconfigured(
                f"{self.path} was deleted or replaced while it was in use: connect again."
            )
        if self._connection.is_cut_off():
            raise Misconfigured(
                f"{self.path}: its write-ahead log was deleted while it was in use, so that others "
                f"do not see these locks. Something in this process has read or copied the file, "
                f"which ends SQLite's locks on it. Start the process anew, and copy the file from "
                f"another one."
            )
        if not 0 <= now - self._checked_at < FILE_CHECKED_FOR:  # a clock that jumps shows here
            self._clock.check()
        self._checked_at = now


def _check_not_open_across_a_fork(path: Path) -> None:
    if identity(path) in [store._identity for store in _open_across_a_fork]:
        raise Misconfigured(
            f"{path} was in use at the very moment when this process was forked, and cannot be "
            f"opened in it any more: fork at another time, or start the process anew (`spawn`). "
            f"uWSGI does not tell Python that it forks, unless it is started with lazy-apps or "
            f"py-call-uwsgi-fork-hooks."
        )
