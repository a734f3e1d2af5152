"""The SQLite store: single-statement compare-and-swap on one table.

Each statement is a transaction of its own, so a process that dies leaves nothing locked.
Write-ahead logging lets readers and the one writer pass each other; a power cut may undo
the last few writes, but then all holders on this machine are gone as well.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Conflict, Entry, Facts, Interval, Page, Swapped, Version
from holdfast.core.effects import Swap
from holdfast.core.records import SECOND, Micros, Record, encode
from holdfast.errors import BadOption, BadURL, HoldfastError, Misconfigured, StoreReadOnly
from holdfast.runtime import fork_hooks
from holdfast.stores.base import Outcome, entry_from
from holdfast.stores.sqlite.clock import Clock
from holdfast.stores.sqlite.file import SQL, Connection, check_length, identity, prepare
from holdfast.stores.sqlite.mounts import check_place
from holdfast.stores.sqlite.watch import Watch
from holdfast.stores.waiting.handles import Notify, NotifyingStore, WaitHandle

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

BUSY_S = 5.0
FILE_CHECKED_FOR: Micros = SECOND // 10

_LOAD, _INSERT, _UPDATE, _DELETE = SQL["load"], SQL["insert"], SQL["update"], SQL["delete"]

# In a child: stores whose file was open when it was forked. Closing it, or opening the same file
# again, would go by SQLite's books on the parent's locks.
_open_across_a_fork: list[SQLiteStore] = []


class SQLiteStore(NotifyingStore):
    """All processes that open the same file share its locks."""

    facts = Facts(
        name="sqlite",
        linearizable=True,
        clock="host",
        reach="host",
        wakeup="poll",
        durable=True,
        batch=100,
        caveats=(
            "One machine only: never put the file on a network file system.",
            "After a power cut the last writes may be missing; no holder survives one either.",
        ),
    )

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
        self._lock = threading.Lock()
        check_place(self.path, one_machine=one_machine)
        check_length(self.path)
        _check_not_open_across_a_fork(self.path)
        self._checked_at: Micros = 0
        self._watch = Watch(lambda: Connection(self.path, busy_s), self._now)
        self._paused = False
        self._forking: int | None = None  # the process that is about to, with the file open
        with fork_hooks.held_off():
            self._open()
            fork_hooks.register_store(self)

    def _open(self) -> None:
        self._connection = Connection(self.path, self._busy_s)
        try:
            prepare(self.path, self._connection)
            self._connection.note_index()
            self._clock = Clock(self._connection)
        except BaseException:
            self._connection.close()
            raise
        self._identity = identity(self.path)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> SQLiteStore:
        """`sqlite:///absolute/path`, `sqlite:///~/in/home` or `sqlite:relative/path`."""
        unknown = url.options.keys() - _OPTIONS.keys()
        if unknown:
            raise BadURL(f"sqlite: URLs have no option {', '.join(sorted(unknown))}.")
        said = {name: _OPTIONS[name](text) for name, text in url.options.items()}
        return cls.at(_path_of(url), **{**said, **options})

    @classmethod
    def at(cls, path: str | os.PathLike[str], **options: Any) -> SQLiteStore:
        """The store at a path, with what was given to `connect`."""
        unknown = options.keys() - _OPTIONS.keys()
        if unknown:
            raise BadOption(f"An SQLite store has no option {', '.join(sorted(unknown))}.")
        return cls(path, **options)

    def load(self, key: str) -> Entry:
        """One SELECT."""
        with self._lock:
            return self._load(key)

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """One INSERT, UPDATE or DELETE, and a SELECT only if it did not fit."""
        try:
            with self._lock:
                outcome = self._swap(key, version, record, wake)
        except StoreReadOnly:
            self._open_anew()
            raise
        if wake:
            self._watch.handles.notify(key, wake)
        return outcome

    def swap_many(self, swaps: Sequence[Swap]) -> list[Outcome | Exception]:
        """One transaction: renewals of many leases wait for each other's turn only once."""
        try:
            with self._lock, self._connection.transaction():
                outcomes: list[Outcome | Exception] = [
                    self._swap(swap.key, swap.version, swap.record, swap.wake) for swap in swaps
                ]
        except HoldfastError as trouble:
            if isinstance(trouble, StoreReadOnly):
                self._open_anew()
            return [trouble] * len(swaps)
        for swap in swaps:
            if swap.wake:
                self._watch.handles.notify(swap.key, swap.wake)
        return outcomes

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
        """One SELECT on the primary key."""
        with self._lock:
            self._check_file(self._clock.now())
            name, start = ("first_page", prefix) if cursor is None else ("next_page", cursor)
            first = start.encode(errors="surrogateescape")
            rows = self._connection.run(SQL[name], (first, limit)).fetchall()
            now = self._now()
        found = [(key.decode(errors="surrogateescape"), raw, version) for key, raw, version in rows]
        entries = tuple(
            (key, entry_from(raw, version, now))
            for key, raw, version in found
            if key.startswith(prefix) and _is_text(key)
        )
        goes_on = len(found) == limit and found[-1][0].startswith(prefix)
        return Page(entries, found[-1][0] if goes_on else None)

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Ring when the watch sees the key's turn change."""
        handle = WaitHandle(key, version, token, notify)
        self._watch.add(handle)
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer ring."""
        self._watch.discard(handle)

    def close(self) -> None:
        """Let go of the file."""
        self._watch.close()
        with self._lock:
            self._connection.close()

    def pause(self) -> None:
        """Before a fork: let go of the file, and keep everyone out of it."""
        # A fork in the middle of a call, from a signal handler, would wait for itself.
        self._paused = self._lock.acquire(timeout=self._busy_s)
        if self._paused:
            self._connection.pause()
            self._checked_at = 0
        let_go = self._watch.pause(self._busy_s) and self._paused
        self._forking = None if let_go else os.getpid()

    def resume(self) -> None:
        """After it; the file is opened again when it is next used."""
        if self._forking not in (None, os.getpid()):
            _open_across_a_fork.append(self)
        self._watch.resume()
        if self._paused:
            self._paused = False
            self._lock.release()

    def _open_anew(self) -> None:
        """Once more when it is next used: SQLite opens a file that cannot be written for reading
        only, and would not notice that its permissions were put right meanwhile."""
        with fork_hooks.held_off():
            self.pause()
            self.resume()

    def _swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Outcome:
        now = self._clock.now()
        if not 0 <= now - self._checked_at < FILE_CHECKED_FOR:
            self._check_file(now)
        written = now if version is None or now > version else version + 1
        raw = None if record is None else encode(record).decode()
        sql, values = _statement(key, version, raw, written, wake)
        if self._connection.run(sql, values, writing=True).rowcount != 1:
            return Conflict(self._load(key))
        return Swapped(None if raw is None else written, Interval(now, now))

    def _load(self, key: str) -> Entry:
        self._check_file(self._clock.now())
        row = self._connection.run(_LOAD, (key,)).fetchone()
        return Entry(now=self._now()) if row is None else entry_from(row[0], row[1], self._now())

    def _now(self) -> Interval:
        at = self._clock.now()
        return Interval(at, at)

    def _check_file(self, now: Micros) -> None:
        # An open file lives on after its name is gone, and with it a second world of locks.
        # Asking the system costs a third of a swap, so swaps do not ask each time.
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


def _is_text(key: str) -> bool:
    """Whether anybody can name this key. If not, it is none of ours."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _statement(
    key: str, version: Version, raw: str | None, written: int, wake: Wake
) -> tuple[str, tuple[Any, ...]]:
    turn = 1 if wake else 0
    if raw is None:
        return _DELETE, (key, version)
    if version is None:
        return _INSERT, (key, written, turn, raw)
    return _UPDATE, (written, turn, raw, key, version)


def _check_not_open_across_a_fork(path: Path) -> None:
    if identity(path) in [store._identity for store in _open_across_a_fork]:
        raise Misconfigured(
            f"{path} was in use at the very moment when this process was forked, and cannot be "
            f"opened in it any more: fork at another time, or start the process anew (`spawn`)."
        )


def _path_of(url: StoreURL) -> str:
    path = url.path
    server = url.host or url.user or url.password or url.port
    if server or not path.strip("/") or ":memory:" in path:
        raise BadURL(
            "An SQLite store is named by its file: sqlite:///absolute/path, "
            "sqlite:///~/in/home or sqlite:relative/path (and memory:// needs no file)."
        )
    if path.startswith("/~") or (sys.platform == "win32" and path[2:3] == ":"):
        return path[1:]
    # Four slashes, as SQLAlchemy wants them for an absolute path, mean the same file.
    return "/" + path.lstrip("/") if path.startswith("/") else path


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"busy_s is a number of seconds, not {text!r}.") from None


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise BadOption(f"one_machine is yes or no, not {text!r}.")
    return text == "yes"


# How each is read from a URL.
_OPTIONS: dict[str, Callable[[str], Any]] = {"busy_s": _number, "one_machine": _yes}
