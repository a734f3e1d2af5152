"""What the tasks of all worker processes did, in order: one line of JSON for each thing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """A file that many processes append to."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def write(self, what: str, **facts: Any) -> None:
        """One write call to a file opened for appending: lines do not mix."""
        line = json.dumps({"what": what, "at": time.monotonic(), **facts}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def entries(self, what: str | None = None, **facts: Any) -> list[dict[str, Any]]:
        """What was written, of one kind or with some facts if asked."""
        if not self._path.exists():
            return []
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        wanted = facts if what is None else {"what": what, **facts}
        return [line for line in lines if wanted.items() <= line.items()]

    def wait_for(self, what: str, count: int = 1, within: float = 30, **facts: Any) -> list[Any]:
        """Block until so many of them are there."""
        ends_at = time.monotonic() + within
        while len(found := self.entries(what, **facts)) < count:
            assert time.monotonic() < ends_at, f"no {what} in {self.entries(**facts)}"
            time.sleep(0.02)
        return found


def overlaps(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `begin`s that came while another run on the same key had not yet ended."""
    running: dict[str, Any] = {}
    found = []
    for entry in entries:
        if entry["what"] == "begin":
            if entry["key"] in running:
                found.append(entry)
            running[entry["key"]] = entry
        elif entry["what"] == "end":
            running.pop(entry["key"], None)
    return found
