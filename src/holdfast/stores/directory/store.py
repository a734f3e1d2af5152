"""The directory store: a real compare-and-swap across processes, by POSIX means."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Amended, Change, Conflict, Entry, Page, Swapped, Version
from holdfast.core.records import NEVER, Micros, Record
from holdfast.errors import BadOption, BadURL, MissingDriver, StoreReadOnly
from holdfast.runtime import fork_hooks
from holdfast.stores.base import Outcome, Store
from holdfast.stores.blob.codec import label_of, new_nonce, pack, unpack
from holdfast.stores.blob.names import key_of, name_of, start_of
from holdfast.stores.directory.folder import TICK, Folder, version_of
from holdfast.stores.directory.notify import FileLooker, turn_of
from holdfast.stores.waiting.local_poller import LocalPoller, LocalStore
from holdfast.stores.waiting.polling_store import POLLED

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

BUSY_S = 5.0


class DirectoryStore(LocalStore):
    """All processes that see the same directory share its locks."""

    facts = replace(
        POLLED,
        name="directory",
        clock_doubt=TICK,
        amends=True,
        caveats=(
            "On a network file system it is as good as its flock and rename: NFSv4 with locks is "
            "fine, a mount with nolock or local_lock is not.",
            "A process that is stopped within the microseconds of a write blocks that key.",
            "After a power cut the last writes may be missing, unless fsync is on.",
        ),
    )

    def __init__(
        self, path: str | os.PathLike[str], *, busy_s: float = BUSY_S, fsync: bool = False
    ) -> None:
        if not busy_s > 0:
            raise BadOption("busy_s is how many seconds to wait while others write: above 0.")
        self.path = Path(path).expanduser().absolute()
        self._folder = Folder(self.path, busy_s, fsync=fsync)
        self._busy_s = busy_s
        self._fsync = fsync
        self._paused = False
        self._poller = LocalPoller(FileLooker(self._folder, self._entry))
        # Only `setup` makes the directories above it; until then every call fails.
        if self._folder.path.parent.is_dir():
            with suppress(StoreReadOnly):  # it can still be read
                self._folder.create()
        fork_hooks.register_store(self)

    @classmethod
    def from_url(cls, url: StoreURL, **options: Any) -> Store:
        """`file:///absolute/path`, or `file:///~/in/home`."""
        given = {**url.options, **options}
        path = _path_of(url)
        if given.get("protocol", "conditional") != "conditional":
            return _last_writer(url, options)
        given.pop("protocol", None)
        if "busy_s" in given:
            given["busy_s"] = _number(given["busy_s"])
        if "fsync" in given:
            given["fsync"] = str(given["fsync"]).lower() in ("1", "true", "yes", "on")
        unknown = given.keys() - {"busy_s", "fsync"}
        if unknown:
            raise BadURL(f"file: URLs have no option {', '.join(sorted(unknown))}.")
        return cls(path, **given)

    def load(self, key: str, by: Micros = NEVER) -> Entry:
        """Read a file, then the clock."""
        raw = self._folder.read(name_of(key))
        return self._entry(key, raw)

    def swap(
        self,
        key: str,
        version: Version,
        record: Record | None,
        wake: Wake = NOBODY,
        by: Micros = NEVER,
    ) -> Outcome:
        """Under the lock: read, compare, rename."""
        name = name_of(key)

        def compare_and_replace() -> Outcome:
            before = self._folder.read(name)
            if version != (None if before is None else version_of(before)):
                return Conflict(self._entry(key, before))
            return Swapped(self._replace(key, before, record, wake))

        outcome = self._folder.when_locked(name, compare_and_replace, by)
        if isinstance(outcome, Conflict):
            return outcome
        if wake:
            self._poller.notify(key, wake, record)
        return Swapped(outcome.version, self._folder.now())

    def amend(self, key: str, change: Change, by: Micros = NEVER) -> Amended:
        """Under the lock: read, decide, rename."""
        name = name_of(key)

        def decide_and_replace() -> Amended:
            before = self._folder.read(name)
            entry = self._entry(key, before)
            decision = change(entry)
            if decision.record is not None:
                written = self._replace(key, before, decision.record, decision.wake)
                entry = Entry(decision.record, written, entry.now)
            return Amended(decision, entry)

        amended = self._folder.when_locked(name, decide_and_replace, by)
        if amended.decision.wake:
            self._poller.notify(key, amended.decision.wake, amended.decision.record)
        return amended

    def _replace(
        self, key: str, before: bytes | None, record: Record | None, wake: Wake
    ) -> Version:
        """Write a file anew, or delete it. Returns its version. The caller has its lock."""
        name, nonce = name_of(key), new_nonce()
        if record is None:
            self._folder.remove(name)
            return None
        raw = pack(key, nonce, record, nonce if wake else turn_of(before))
        self._folder.put(nonce, name, raw)
        return version_of(raw)

    def scan(self, prefix: str, cursor: str | None, limit: int, by: Micros = NEVER) -> Page:
        """A listing in the order of the files' names."""
        names = self._folder.names(start_of(prefix), cursor or "", limit)
        entries = []
        for name in names:
            raw = None if key_of(name) is None else self._folder.read(name)
            if raw is not None:
                label = label_of(raw)
                named = label is not None and name_of(label.key) == name
                key = label.key if label is not None and named else key_of(name)
                if key is not None and key.startswith(prefix):
                    entries.append((key, self._entry(key, raw)))
        return Page(tuple(entries), names[-1] if len(names) == limit else None)

    def _entry(self, key: str, raw: bytes | None) -> Entry:
        now = self._folder.now()
        return Entry(now=now) if raw is None else unpack(key, raw, version_of(raw), now)

    # --- its life -----------------------------------------------------------------------------

    def setup(self) -> None:
        """Create the directory, and those above it."""
        self._folder.create(parents=True)
        self._folder.tidy()

    def close(self) -> None:
        """Waiting calls return."""
        self._poller.close()

    def pause(self) -> None:
        """Before a fork: finish a write. Else the child would have a copy of its lock."""
        self._paused = self._folder.mutex.acquire(timeout=self._busy_s)

    def resume(self) -> None:
        """After it."""
        if self._paused:
            self._paused = False
            self._folder.mutex.release()

    def abandon(self) -> None:
        """In a forked child: this one is not used any more."""
        fork_hooks.forget_store(self)

    def for_child(self) -> DirectoryStore:
        """Returns a store on the same directory."""
        return type(self)(self.path, busy_s=self._busy_s, fsync=self._fsync)


def _path_of(url: StoreURL) -> str:
    server = url.host or url.user or url.password or url.port
    if server or not url.path.startswith("/") or not url.path.strip("/"):
        raise BadURL(
            "A directory of locks is named by its path: file:///absolute/path or file:///~/in/home"
        )
    return url.path[1:] if url.path.startswith("/~") else "/" + url.path.lstrip("/")


def _last_writer(url: StoreURL, options: dict[str, Any]) -> Store:
    try:
        from holdfast.stores.blob.store import BlobStore
    except ImportError as exc:
        raise MissingDriver(
            f"protocol=last-writer needs {exc.name}: pip install 'holdfast[blob]'"
        ) from exc
    return BlobStore.from_url(url, **options)


def _number(text: Any) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"busy_s is a number of seconds, not {text!r}.") from None
