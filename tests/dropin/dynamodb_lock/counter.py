"""A worker that counts under a lock: reads a number, thinks, and writes one more.

python -m tests.dropin.dynamodb_lock.counter ENDPOINT TABLE old|new TIMES OWNER FILE
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import cast

from tests.dropin.dynamodb_lock.lab import Lab, Whose


def main(endpoint: str, table: str, whose: Whose, times: int, owner: str, file: Path) -> None:
    """Count."""
    lab = Lab(endpoint, table)
    lock = lab.lock(whose, ttl_seconds=3600)
    for _ in range(times):
        while not lock.acquire("k", owner):
            time.sleep(random.uniform(0.1, 0.3))
        number = int(file.read_text())
        time.sleep(0.001)
        file.write_text(str(number + 1))
        assert lock.release("k", owner)
    lab.close()


if __name__ == "__main__":
    endpoint, table, whose, times, owner, file = sys.argv[1:]
    main(endpoint, table, cast("Whose", whose), int(times), owner, Path(file))
