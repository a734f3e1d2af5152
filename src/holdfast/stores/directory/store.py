"""The directory store: a real compare-and-swap across processes, by POSIX means."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Conflict, Entry, Page, Swapped, Version
from holdfast.core.records import Record
from holdfast.errors import BadOption, BadURL, MissingDriver, StoreReadOnly
from holdfast.runtime import fork_hooks
from holdfast.stores.base import Outcome, Store
from holdfast.stores.blob.codec import label_of, new_nonce, pack, unpack
from holdfast.stores.blob.names import key_of, name_of, start_of
from holdfast.stores.directory.folder import TICK, Folder, version_of
from holdfast.stores.waiting.handles import PollResult, lets_in, poll_result
from holdfast.stores.waiting.poller import Poller, PollIntervals
from holdfast.stores.waiting.polling_store import POLLED, PollingStore

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

BUSY_S = 5.0
# To look at a file costs a microsecond, and a lock often changes hands within a millisecond.
POLL_INTERVALS = PollIntervals(first_s=0.001, longest_s=0.01)


class DirectoryStore(PollingStore):
    """All processes that see the same directory share its locks."""

    facts = replace(
        POLLED,
        name="directory",
        clock_doubt=TICK,
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
        self._writing = threading.Lock()
        self._paused = False
        self._seen: dict[str, tuple[Any, PollResult | None]] = {}
        self._poller = Poller(self._turns, lets_in, POLL_INTERVALS)
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

    def load(self, key: str) -> Entry:
        """Read a file, then the clock."""
        raw = self._folder.read(name_of(key))
        return self._entry(key, raw)

    def swap(
        self, key: str, version: Version, record: Record | None, wake: Wake = NOBODY
    ) -> Outcome:
        """Under the lock: read, compare, rename."""
        name, nonce = name_of(key), new_nonce()
        with self._writing, self._folder.locked(name):
            before = self._folder.read(name)
            if version != (None if before is None else version_of(before)):
                return Conflict(self._entry(key, before))
            written = None
            if record is None:
                self._folder.remove(name)
            else:
                raw = pack(key, nonce, record, nonce if wake else _turn_of(before))
                self._folder.put(nonce, name, raw)
                written = version_of(raw)
        if wake:
            self._poller.handles.notify(key, wake)
        return Swapped(written, self._folder.now())

    def scan(self, prefix: str, cursor: str | None, limit: int) -> Page:
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

    # --- waiting ------------------------------------------------------------------------------

    def _turns(self, keys: Sequence[str]) -> dict[str, PollResult]:
        """Returns what is to be seen of these keys. Reads only files that have changed."""
        seen = {}
        for key in keys:
            signature, result = self._seen.get(key, (None, None))
            found = self._folder.signature(name_of(key))
            if found != signature:
                raw = self._folder.read(name_of(key))
                result = None if raw is None else poll_result(self._entry(key, raw), _turn_of(raw))
            seen[key] = found, result
        self._seen = seen
        return {key: result for key, (_, result) in seen.items() if result is not None}

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
        self._paused = self._writing.acquire(timeout=self._busy_s)

    def resume(self) -> None:
        """After it."""
        if self._paused:
            self._paused = False
            self._writing.release()


def _turn_of(raw: bytes | None) -> str:
    label = None if raw is None else label_of(raw)
    return "" if label is None else label.turn


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
