"""One of a crowd: reads and writes a resource under its lock, and notices any overlap.

python -m tests.stores.sql.crowd URL KEY FOLDER NUMBER TIMES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import holdfast


def write(folder: Path) -> None:
    """Count up, as the only one inside."""
    inside = folder / "writer"
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
    assert not list(folder.glob("reader-*")), "a reader beside a writer"
    count = int((folder / "count").read_text())
    (folder / "count").write_text(str(count + 1))
    inside.unlink()


def read(folder: Path, number: str) -> None:
    """Look, with other readers at most."""
    inside = folder / f"reader-{number}"
    inside.touch()
    assert not (folder / "writer").exists(), "a writer beside a reader"
    int((folder / "count").read_text())
    inside.unlink()


def main(url: str, key: str, folder: str, number: str, times: str) -> None:
    """Write every third time, and read otherwise."""
    with holdfast.connect(url, owner=f"member {number}", ttl=30) as locks:
        for turn in range(int(times)):
            if (turn + int(number)) % 3 == 0:
                with locks.acquire(key, timeout=90):
                    write(Path(folder))
            else:
                with locks.acquire(key, mode="shared", timeout=90):
                    read(Path(folder), number)


if __name__ == "__main__":
    main(*sys.argv[1:])
