"""An older release and this one work side by side on one store, in either role.

    python -m tests.side_by_side [STORE …] [--old ac46a5d]

The older one is taken out of the history (0.1.0 is ac46a5d). Stores are sqlite, file, redis,
postgresql, mysql, dynamodb and s3; without a name, all of them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import queue
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from tests.conformance.dynamodb_targets import TABLE, DynamoDBTarget
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.s3 import S3Server
from tests.engines.shared import shared

ROOT = Path(__file__).parent.parent.parent
RELEASED = "ac46a5d"  # 0.1.0
PATIENCE_S = 120.0
CROWD = 3  # of each
TIMES = 40


class Process:
    """A worker; calls of its methods are sent to it."""

    def __init__(self, source: Path, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source), **AWS},
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.version, where = self.answer()
        assert where.startswith(str(source)), where

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)

    def send(self, *call: Any) -> None:
        """Ask without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer."""
        return json.loads(self._answers.get(timeout=PATIENCE_S))

    def __call__(self, *call: Any) -> Any:
        self.send(*call)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """As kill -9."""
        self._process.kill()
        self._process.wait(PATIENCE_S)


AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
NOW = {"timeout": 0}


# --- what is promised, with each of the two as the first ------------------------------------


def excludes(first: Process, second: Process, key: str) -> None:
    """One holder, and fences that grow."""
    fence = first("acquire", key, {"ttl": 30})
    assert second("acquire", key, NOW) == "refused"
    assert second("show", key)[1:] == first("show", key)[1:]
    assert len(second("show", key)[1]) == 1
    assert key in second("list", key)
    first("renew", key)
    first("release", key)
    assert second("acquire", key, {"timeout": 60}) > fence
    second("release", key)


def shares(first: Process, second: Process, key: str) -> None:
    """Readers beside readers, and no writer."""
    first("acquire", key, {"mode": "shared"})
    second("acquire", key, {"mode": "shared", "timeout": 60})
    second("release", key)
    assert second("acquire", key, NOW) == "refused"
    first("release", key)


def counts(first: Process, second: Process, key: str) -> None:
    """Two permits for two, and none for a third."""
    first("acquire", key, {"limit": 2})
    second("acquire", key, {"limit": 2, "timeout": 60})
    assert second("acquire", key, {"limit": 2, **NOW}) == "refused"
    first("release", key)
    second("release", key)


def waits(first: Process, second: Process, key: str) -> None:
    """A waiter is seen, and a release lets it in."""
    fence = first("acquire", key, {"ttl": 30})
    second.send("acquire", key, {"ttl": 30, "timeout": 60})
    until = time.monotonic() + PATIENCE_S
    while not first("show", key)[2]:
        assert time.monotonic() < until, "nobody is seen to wait"
        time.sleep(0.05)
    first("release", key)
    assert second.answer() > fence
    second("release", key)


def hands_over(first: Process, second: Process, key: str) -> None:
    """A ticket of one is good for the other."""
    fence = first("acquire", key, {"ttl": 30})
    assert second("take", first("hand_over", key)) > fence
    assert first("join", second("share", key)) > fence
    second("release", key)


def evicts(first: Process, second: Process, key: str) -> None:
    """A holder is evicted, notices, and can read what is left of it."""
    fence = first("acquire", key, {"ttl": 30})
    assert second("evict", key) == 1
    assert first("renew", key) == "refused"
    assert first("acquire", key, {"timeout": 60}) > fence
    assert second("show", key)[3] is None
    first("release", key)


def succeeds(first: Process, second: Process, key: str) -> None:
    """Whoever dies is succeeded after its ttl. (The last one: the first is dead then.)"""
    fence = first("acquire", key, {"ttl": 3})
    first.kill()
    assert second("acquire", key, {"timeout": 60}) > fence
    second("release", key)


PROMISES: tuple[Callable[[Process, Process, str], None], ...] = (
    excludes, shares, counts, waits, hands_over, evicts, succeeds,
)  # fmt: skip


def crowd(sources: list[Path], url: str, folder: Path) -> None:
    """Old and new ones want one lock: nobody's line is overwritten, and the fences grow."""
    diary = folder / f"diary-{uuid4().hex}"
    diary.write_text("")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Process(source, url)) for source in sources for _ in range(CROWD)
        ]
        for process in processes:
            process.send("count", "crowd", str(diary), TIMES)
        for process in processes:
            assert process.answer() is None
    fences = [int(line) for line in diary.read_text().split()]
    assert len(fences) == len(sources) * CROWD * TIMES
    assert fences == sorted(set(fences))


# --- where ----------------------------------------------------------------------------------


def _dynamodb(folder: Path) -> str:
    endpoint = DynamoDBTarget(folder).endpoint
    return f"dynamodb://{TABLE}?endpoint_url={endpoint}&region=eu-west-1"


def _s3(folder: Path) -> str:
    server = shared(S3Server)
    server.create_bucket("fleet")
    options = "region=local&access_key_id=a&secret_access_key=b"
    return f"s3://fleet/locks?endpoint={server.endpoint}&{options}"


STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite://{folder}/locks.db",
    "file": lambda folder: f"file://{folder}/locks",
    "redis": lambda folder: shared(RedisServer).url,
    "postgresql": lambda folder: shared(PostgreSQL).url(),
    "mysql": lambda folder: shared(MariaDB).url(),
    "dynamodb": _dynamodb,
    "s3": _s3,
}


def check_out(commit: str, into: Path) -> Path:
    """Returns the folder with the package of this commit."""
    command = ["git", "archive", commit, "src"]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(into, filter="data")
    return into / "src"


def check(old: Path, url: str, folder: Path) -> list[str]:
    """Returns what went wrong on this store."""
    wrong = []
    new = ROOT / "src"
    for one, other in ((old, new), (new, old)):
        with Process(one, url) as first, Process(other, url) as second:
            for promise in PROMISES:
                try:
                    promise(first, second, f"{promise.__name__}-{uuid4().hex}")
                except (AssertionError, queue.Empty) as exc:
                    wrong.append(f"{promise.__name__} from {first.version} ({one}): {exc!r}")
    try:
        crowd([old, new], url, folder)
    except (AssertionError, queue.Empty) as exc:
        wrong.append(f"a crowd: {exc!r}")
    return wrong


def main() -> int:
    """Try them. Returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE")
    parser.add_argument("--old", default=RELEASED)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old = check_out(options.old, folder / "old")
        for store in options.stores or STORES:
            wrong = check(old, STORES[store](folder), folder)
            failed += len(wrong)
            sys.stdout.write("\n  ".join([f"{store}: {len(wrong)} wrong", *wrong]) + "\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
