"""The files in a directory: read, replaced as a whole, locked, and the file system's clock.

    directory/<percent-encoded key>.json     the records
    directory/.holdfast/lock-00 … lock-3f    locked while a record is compared and replaced
    directory/.holdfast/clock                touched to read the clock
    directory/.holdfast/new-…                what is about to become a record

A reader never waits: a new record is written to a file beside, and renamed into place. A writer
holds one of the locks while it reads, compares and renames. The locks are `flock`s, which the
system drops when a process dies.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from errno import ELOOP
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from threading import Lock, Thread
from typing import TypeVar
from zlib import crc32

from holdfast.core.contract import Interval
from holdfast.core.records import NEVER, SECOND, Micros
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.runtime.pool import settle
from holdfast.stores.deadlines import seconds_left
from holdfast.stores.directory.errors import gone, trouble

try:
    import fcntl
except ImportError as exc:  # Windows
    raise Misconfigured(
        "A directory of locks needs flock, which this system does not have: use sqlite: here."
    ) from exc

R = TypeVar("R")

OURS = ".holdfast"
# What a read returns of something that is no file: there is no record in it.
NO_FILE = b""
LOCKS = 64
# A file's time is that of the last tick, and the kernel's clock ticks every 1 to 10 ms.
TICK: Micros = SECOND // 100
# Each try opens the lock file. With naps of up to 2 ms, 60 processes took 11.7 ms of CPU a lock,
# with 30 ms 7.6 ms, and got as many locks.
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.00005, 0.03
LEFT_OVER_S = 3600.0


class _File(FileIO):
    """An open file that is closed when nothing refers to it any more, without a warning: a signal
    handler may raise before anybody could close it."""

    def __del__(self) -> None:
        self.close()


class _LockFile(_File):
    """The same for one that is locked."""

    def close(self) -> None:
        """Unlock it, also if a forked child has a copy of it."""
        try:
            if not self.closed:
                with suppress(OSError):  # a file server without locks; to close it unlocks it too
                    fcntl.flock(self, fcntl.LOCK_UN)
        finally:
            super().close()


class Folder:
    """The directory at a path."""

    def __init__(
        self, path: Path, busy_s: float, *, fsync: bool = False, locks: int = LOCKS
    ) -> None:
        self.path = path
        self._locks = locks
        self._ours = path / OURS
        # Strings, because Path interns every name it is given, and there may be very many.
        self._files, self._beside = f"{path}/", f"{path / OURS}/"
        self._busy_s = busy_s
        self._fsync = fsync
        self.mutex = Lock()

    # --- reading ------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Returns what is in a file; None if there is none."""
        try:
            return self._read(name)
        except FileNotFoundError:
            self._check_it_is_there()
            return None
        except OSError as exc:
            if exc.errno == ELOOP:
                return NO_FILE
            raise self.trouble(exc) from exc

    def _read(self, name: str) -> bytes:
        # It could be a pipe, on which we would wait, or a device that has no end.
        if not S_ISREG(os.stat(self._files + name).st_mode):
            return NO_FILE
        with _File(self._files + name) as file:
            return file.readall()

    def signature(self, name: str) -> tuple[int, int, int] | None:
        """Returns what changes whenever the file is replaced. Much cheaper than a read."""
        try:
            found = os.stat(self._files + name)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self.trouble(exc) from exc
        return found.st_ino, found.st_mtime_ns, found.st_size

    def names(self, start: str, after: str, limit: int) -> list[str]:
        """Returns the next names that begin with `start`, in order. Never keeps all names at once:
        there may be very many."""
        try:
            with os.scandir(self.path) as files:
                names = (file.name for file in files)
                return nsmallest(
                    limit, (name for name in names if name.startswith(start) and name > after)
                )
        except OSError as exc:
            raise self.trouble(exc) from exc

    def now(self) -> Interval | None:
        """Returns the file system's clock, which on a network is the server's; None if we may not
        touch the file that it is read from."""
        clock = self._beside + "clock"
        try:
            os.utime(clock)
            at = os.stat(clock).st_mtime_ns // 1000
        except OSError:
            return None
        return Interval(at, at + TICK)

    # --- writing ------------------------------------------------------------------------------

    def create(self, *, parents: bool = False) -> None:
        """Make the directory and what belongs in it, unless it exists."""
        names = ("clock", *map(_lock_name, range(self._locks)))
        try:
            if (self._ours / names[-1]).exists():
                return
            self.path.mkdir(parents=parents, exist_ok=True)
            self._ours.mkdir(exist_ok=True)
            for name in names:
                with _File(self._beside + name, "a"):
                    pass
        except OSError as exc:
            raise self.trouble(exc) from exc

    def tidy(self) -> None:
        """Remove the files that crashes in the middle of a write have left."""
        with suppress(OSError):  # also if there is no descriptor left for the listing
            for left in self._ours.glob("new-*"):
                self._tidy(left)

    def _tidy(self, left: Path) -> None:
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_OVER_S:
                left.unlink()

    def when_locked(self, name: str, call: Callable[[], R], by: Micros = NEVER) -> R:
        """Run a call while nobody else reads, compares and replaces this file. The mutex keeps the
        threads of this process apart; nobody naps with it.

        Only `with` takes locks and opens files here: between a plain call that does and the next
        line, a signal handler may raise, and nobody would ever unlock or close.
        """
        path = self._beside + _lock_name(crc32(name.encode()) % self._locks)
        ends_at, nap = None, _SHORTEST_NAP_S
        while True:
            with self.mutex, self._open_lock(path) as file:
                # A lock file that was removed meanwhile is not the one that others lock.
                if self._try_lock(file) and _is_still(file, path):
                    return call()
            if ends_at is None:
                ends_at = time.monotonic() + min(self._busy_s, seconds_left(by))
            if time.monotonic() >= ends_at:
                raise Unavailable(f"Others kept {path} locked for too long.")
            time.sleep(random.uniform(nap / 2, nap))
            nap = min(nap * 1.5, _LONGEST_NAP_S)

    def _open_lock(self, path: str) -> _File:
        try:
            return _LockFile(path, "r+")
        except FileNotFoundError:
            self._check_it_is_there()
            self.create()
        except OSError as exc:
            raise self.trouble(exc) from exc
        try:
            return _LockFile(path, "a+")
        except OSError as exc:
            raise self.trouble(exc) from exc

    def _try_lock(self, file: _File) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as exc:  # a file server may have no locks
            raise self.trouble(exc) from exc
        return True

    def put(self, nonce: str, name: str, raw: bytes) -> None:
        """Replace a file as a whole: others see the old content or all of the new one."""
        self.place(self.prepare(nonce, raw), name)

    def prepare(self, nonce: str, raw: bytes) -> str:
        """Write the content to a file beside, which `place` puts into place. Returns its path."""
        new = f"{self._beside}new-{nonce}"
        try:
            self._write(new, raw)
        except FileNotFoundError:
            self._check_it_is_there()
            self.create()
            return self.prepare(nonce, raw)
        except OSError as exc:
            _unlink(new)
            raise self.trouble(exc) from exc
        return new

    def _write(self, path: str, raw: bytes) -> None:
        with _File(path, "x") as file:
            while raw:  # a disk that is nearly full may take only a part
                raw = raw[os.write(file.fileno(), raw) :]
            if self._fsync:
                os.fsync(file.fileno())

    def place(self, new: str, name: str) -> None:
        """Rename a file into place; if that fails, remove it."""
        try:
            self._replace(new, name)
        except BaseException:
            _unlink(new)
            raise

    def _replace(self, new: str, name: str) -> None:
        try:
            os.replace(new, self._files + name)  # noqa: PTH105
        except OSError as exc:
            raise self.trouble(exc, changing=True) from exc
        if self._fsync:
            try:
                self._sync_names()
            except OSError as exc:
                raise OutcomeUnknown(
                    f"{self.path}: it was written, but may not survive a power cut: {exc.strerror}."
                ) from exc

    def remove(self, name: str) -> None:
        """Delete a file."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as exc:
            raise self.trouble(exc, changing=True) from exc

    def _sync_names(self) -> None:
        """Make a rename last. Python has no object for an open directory that closes itself, and
        a signal handler may raise before the next line has its number. So it is opened in another
        thread: handlers run in the main one."""
        from concurrent.futures import Future

        synced: Future[None] = Future()
        Thread(target=settle, args=(synced, partial(_sync, self.path)), daemon=True).start()
        synced.result()

    # --- trouble ------------------------------------------------------------------------------

    def _check_it_is_there(self) -> None:
        """No file is no record; no directory is no store."""
        if not self.path.is_dir():
            raise gone(self.path)

    def trouble(self, exc: OSError, *, changing: bool = False) -> HoldfastError:
        """Returns what to raise instead of an error of the system. See `errors`."""
        return trouble(exc, self.path, changing=changing)


def version_of(raw: bytes) -> bytes:
    """Returns a digest of a file's content. No two writes have the same content."""
    return blake2b(raw, digest_size=16).digest()


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _lock_name(number: int) -> str:
    return f"lock-{number:02x}"


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def _is_still(file: _File, path: str) -> bool:
    """Whether the file that we have locked is the one that others will lock."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
