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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ELOOP
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from stat import S_ISREG
from zlib import crc32

from holdfast.core.contract import Interval
from holdfast.core.records import SECOND, Micros
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.stores.directory.errors import gone, trouble

try:
    import fcntl
except ImportError as exc:  # Windows
    raise Misconfigured(
        "A directory of locks needs flock, which this system does not have: use sqlite: here."
    ) from exc

OURS = ".holdfast"
# What a read returns of something that is no file: there is no record in it.
NO_FILE = b""
LOCKS = 64
# A file's time is that of the last tick, and the kernel's clock ticks every 1 to 10 ms.
TICK: Micros = SECOND // 100
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.00005, 0.002
LEFT_OVER_S = 3600.0


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
        opened = os.open(self._files + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not S_ISREG(os.fstat(opened).st_mode):
                return NO_FILE
            raw = os.read(opened, 65536)
            while more := os.read(opened, 65536):
                raw += more
            return raw
        finally:
            os.close(opened)

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
                (self._ours / name).touch()
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

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Within this block, nobody else reads, compares and replaces this file."""
        opened = self._lock(_lock_name(crc32(name.encode()) % self._locks))
        try:
            yield
        finally:
            fcntl.flock(opened, fcntl.LOCK_UN)  # also if a forked child has a copy of it
            os.close(opened)

    def _lock(self, lock: str) -> int:
        path = self._beside + lock
        ends_at = time.monotonic() + self._busy_s
        nap = _SHORTEST_NAP_S
        while True:
            opened = self._open_lock(path)
            try:
                while not _try_lock(opened):
                    if time.monotonic() > ends_at:
                        raise Unavailable(f"{path} was kept locked by others too long.")
                    time.sleep(random.uniform(nap / 2, nap))
                    nap = min(nap * 1.5, _LONGEST_NAP_S)
                if _is_still(opened, path):
                    return opened
            except BaseException as exc:
                os.close(opened)
                if isinstance(exc, OSError):  # a file server may have no locks
                    raise self.trouble(exc) from exc
                raise
            os.close(opened)  # the lock file was removed meanwhile, and others lock a new one

    def _open_lock(self, path: str) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            self._check_it_is_there()
            self.create()
        except OSError as exc:
            raise self.trouble(exc) from exc
        try:
            return os.open(path, flags | os.O_CREAT, 0o666)
        except OSError as exc:
            raise self.trouble(exc) from exc

    def put(self, nonce: str, name: str, raw: bytes) -> None:
        """Replace a file as a whole: others see the old content or all of the new one."""
        new = self._prepare(nonce, raw)
        try:
            self._replace(new, name)
        except BaseException:
            _unlink(new)
            raise

    def _prepare(self, nonce: str, raw: bytes) -> str:
        """Write the content to a file beside, which `_replace` puts into place."""
        new = f"{self._beside}new-{nonce}"
        try:
            self._write(new, raw)
        except FileNotFoundError:
            self._check_it_is_there()
            self.create()
            return self._prepare(nonce, raw)
        except OSError as exc:
            _unlink(new)
            raise self.trouble(exc) from exc
        return new

    def _write(self, path: str, raw: bytes) -> None:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            while raw:  # a disk that is nearly full may take only a part
                raw = raw[os.write(opened, raw) :]
            if self._fsync:
                os.fsync(opened)
        finally:
            os.close(opened)

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
        opened = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

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


def _lock_name(number: int) -> str:
    return f"lock-{number:02x}"


def _try_lock(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def _is_still(opened: int, path: str) -> bool:
    """Whether the file that we have locked is the one that others will lock."""
    try:
        return os.path.samestat(os.fstat(opened), os.stat(path))
    except FileNotFoundError:
        return False
