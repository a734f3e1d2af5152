"""What this client wrote last under each key, and which parties in it have no expiry yet."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from holdfast.core.contract import Version
from holdfast.core.records import Micros, Record
from holdfast.stores.blob.codec import Mark, unclocked

REMEMBERED = 4096
K = TypeVar("K")
T = TypeVar("T")


class _Last:
    """The last write under a key: its version, when it was sent, and when it was answered."""

    __slots__ = ("expiries", "got", "open", "sent", "version")

    def __init__(self, version: Version, record: Record, sent: Micros, got: Micros) -> None:
        self.version = version
        self.sent = sent
        self.got = got
        self.open = unclocked(record)
        self.expiries: dict[Mark, Micros] = {}


class OwnWrites:
    """The last writes of this client. Bounded: a write that was forgotten costs one more request,
    or makes a lease last a little longer."""

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}
        self._waits: dict[tuple[str, str], Micros] = {}

    def wrote(self, key: str, version: Version, record: Record, sent: Micros, got: Micros) -> None:
        """Remember a write that was carried out."""
        last = _Last(version, record, sent, got)
        before = self._last.get(key)
        if before is not None:
            last.expiries = {mark: at for mark, at in before.expiries.items() if mark in last.open}
        _put(self._last, key, last)

    def forget(self, key: str) -> None:
        """Forget a key whose record was dropped."""
        self._last.pop(key, None)

    def when(self, key: str, version: Version) -> tuple[Micros, Micros] | None:
        """Returns when this version was sent and answered; None if we did not write it."""
        last = self._of(key, version)
        return None if last is None else (last.sent, last.got)

    def left_open(self, key: str, version: Version, record: Record) -> bool:
        """Whether a party in this record was in that version of ours already, without an
        expiry."""
        last = self._of(key, version)
        return last is not None and not (unclocked(record) & last.open) <= last.expiries.keys()

    def close(self, key: str, version: Version, expiries: dict[Mark, Micros]) -> None:
        """Remember when the parties of that version run out."""
        last = self._of(key, version)
        if last is not None:
            known = {mark: at for mark, at in expiries.items() if mark in last.open}
            last.expiries = known | last.expiries

    def expiries(self, key: str, version: Version) -> dict[Mark, Micros]:
        """Returns the expiries that are known of the parties that had none."""
        last = self._of(key, version)
        return {} if last is None else last.expiries

    def waiting_since(self, key: str, token: str, now: Micros) -> Micros:
        """Returns when this token began to wait."""
        since = self._waits.get((key, token))
        if since is None:
            _put(self._waits, (key, token), now)
            return now
        return since

    def _of(self, key: str, version: Version) -> _Last | None:
        last = self._last.get(key)
        return last if last is not None and last.version == version else None


def _put(memory: dict[K, T], key: K, value: T) -> None:
    if key not in memory and len(memory) >= REMEMBERED:
        with suppress(RuntimeError):  # another thread was faster, and made room
            memory.pop(next(iter(memory), key), None)
    memory[key] = value
