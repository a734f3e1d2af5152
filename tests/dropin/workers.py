"""Several processes at once, in one process group, that count in a file under a lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_together(
    module: str, arguments: Iterable[tuple[object, ...]], within_s: float = 180
) -> None:
    """Run a module with each of these arguments, and wait until all have ended well."""
    workers = [
        subprocess.Popen([sys.executable, "-m", module, *map(str, each)], cwd=ROOT)
        for each in arguments
    ]
    try:
        assert [worker.wait(within_s) for worker in workers] == [0] * len(workers)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()


def count_together(module: str, file: Path, arguments: Iterable[tuple[object, ...]]) -> int:
    """What workers that are told these arguments and this file have counted to."""
    file.write_text("0")
    run_together(module, [(*each, file) for each in arguments])
    return int(file.read_text())
