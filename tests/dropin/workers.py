"""Several processes at once, in one process group."""

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
