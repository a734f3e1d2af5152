"""Looks at the files of a directory on behalf of waiting calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.contract import Entry
from holdfast.stores.blob.codec import label_of
from holdfast.stores.blob.names import name_of
from holdfast.stores.directory.folder import Folder
from holdfast.stores.waiting.handles import PollResult, poll_result

MOST_SEEN = 10_000


class FileLooker:
    """Reads only files that have changed: to ask whether one has costs a microsecond."""

    def __init__(self, folder: Folder, entry_of: Callable[[str, bytes | None], Entry]) -> None:
        self._folder = folder
        self._entry_of = entry_of
        self._seen: dict[str, tuple[Any, PollResult | None]] = {}

    def look(self, keys: Sequence[str]) -> dict[str, PollResult]:
        """Returns what is there now under these keys."""
        if len(self._seen) > MOST_SEEN:
            self._seen = {}
        self._seen.update({key: self._look(key) for key in keys})
        return {key: seen for key in keys if (seen := self._seen[key][1]) is not None}

    def _look(self, key: str) -> tuple[Any, PollResult | None]:
        name = name_of(key)
        before, result = self._seen.get(key, (None, None))
        signature = self._folder.signature(name)
        if signature != before:
            raw = self._folder.read(name)
            result = None if raw is None else poll_result(self._entry_of(key, raw), turn_of(raw))
        return signature, result

    def pause(self) -> None:
        """There is nothing open between two looks."""

    def close(self) -> None:
        """Forget what was seen."""
        self._seen = {}


def turn_of(raw: bytes | None) -> str:
    """Returns the nonce of the last write that may have let somebody in."""
    label = None if raw is None else label_of(raw)
    return "" if label is None else label.turn
