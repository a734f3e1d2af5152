"""Where results go. A folder here; a bucket or a table where this is in earnest.

A result is kept with the fence of the lease under which it was computed, and one with an
older fence is refused: a worker that lost its lease and does not know it cannot do harm.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = Path(os.environ.get("RESULTS", "."))


def read(part: str) -> int | None:
    """The result of a part, if it was computed."""
    try:
        return int(json.loads(_path(part).read_text())["result"])
    except FileNotFoundError:
        return None


def write(part: str, result: int, fence: int) -> None:
    """Keep a result, all of it or nothing."""
    with_fence = {"result": result, "fence": fence}
    if _path(part).exists() and json.loads(_path(part).read_text())["fence"] > fence:
        raise RuntimeError(f"{part} was written under a later lease")
    draft = _path(part).with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(with_fence))
    draft.replace(_path(part))


def note(line: str) -> None:
    """A line for the journal that the story counts by."""
    with (FOLDER / "journal").open("a") as journal:
        journal.write(f"{line}\n")


def journal() -> list[str]:
    """What was noted."""
    try:
        return (FOLDER / "journal").read_text().splitlines()
    except FileNotFoundError:
        return []


def _path(part: str) -> Path:
    return FOLDER / f"{part}.json"
