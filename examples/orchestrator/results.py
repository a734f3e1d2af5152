"""Where results go. A folder here; a bucket or a table where this is in earnest.

A result is written behind a gate: one that was computed under an older lease is refused, in the
very step that would have put it into place. So a worker that lost its lease and does not know it
cannot do harm.

    python -m examples.orchestrator.results PART RESULT      for workers in other languages
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from holdfast import fencing
from holdfast.fencing import Fence
from holdfast.fencing.gate import Fenced

FOLDER = Path(os.environ.get("RESULTS", "."))


def read(part: str) -> int | None:
    """The result of a part, if it was computed."""
    try:
        return int(json.loads(_path(part).read_text())["result"])
    except FileNotFoundError:
        return None


def write(part: str, result: int, lease: Fenced) -> None:
    """Keep a result, all of it or nothing. `StaleFence` if a later holder has written it."""
    fencing.files.write(_path(part), json.dumps({"result": result}), lease)


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


if __name__ == "__main__":  # under `holdfast run`, which says in the environment what it holds
    write(sys.argv[1], int(sys.argv[2]), Fence.from_environment())
