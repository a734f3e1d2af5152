"""mops' own leases and ours, side by side."""

from __future__ import annotations

import json
import logging
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.dropin import mops_lock
from tests.dropin.mops_lock.blobs import register


def _import_mops() -> Any:
    """It leaves files open, and sets up the log of the whole process if nobody has.

    It reads the sources of its whole stack, nine times, and pytest's is deep: a thread's is not.
    """
    somebody = logging.NullHandler()
    logging.getLogger().addHandler(somebody)
    try:
        with warnings.catch_warnings(), ThreadPoolExecutor(1) as thread:
            warnings.simplefilter("ignore")
            return thread.submit(import_module, "thds.mops.pure.core.lease").result()
    finally:
        logging.getLogger().removeHandler(somebody)


theirs: Any = _import_mops()
register()
ours: Any = mops_lock
MODULES = {"theirs": theirs, "ours": ours}
SHORT = timedelta(seconds=0.5)
LONG = timedelta(seconds=60)


class Folder:
    """A folder with one lease in it, and what is in its file."""

    def __init__(self, path: Path) -> None:
        self.memo = f"file://{path}/memo"
        self.uri = f"{self.memo}/lock"
        self.file = path / "memo" / "lock" / "lock.json"

    def read(self) -> dict[str, Any]:
        """The file as it is."""
        contents: dict[str, Any] = json.loads(self.file.read_bytes())
        return contents

    def write(self, body: bytes | dict[str, Any]) -> None:
        """Somebody else's file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())

    def age(self, by: timedelta) -> None:
        """Let the lease have been written earlier."""
        contents = self.read()
        written_at = datetime.fromisoformat(contents["written_at"]) - by
        self.write({**contents, "written_at": written_at.astimezone(UTC).isoformat()})

    def writer(self) -> str:
        """Whose it is; empty if it was released."""
        contents = self.read()
        return "" if contents["released_at"] else str(contents["writer_id"])


def race(uri: str, parties: int, **options: Any) -> list[Any]:
    """What so many get who want the lease at the same moment."""
    barrier = threading.Barrier(parties)

    def acquire(_: int) -> Any:
        barrier.wait(30)
        return ours.acquire(uri, expire=LONG, **options)

    with ThreadPoolExecutor(parties) as pool:
        return [each for each in pool.map(acquire, range(parties)) if each is not None]
