"""A worker that counts under a lock: reads a number, thinks, and writes one more.

python -m tests.dropin.python_dynamodb_lock.counter ENDPOINT TABLE theirs|ours TIMES FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import cast

from tests.dropin.python_dynamodb_lock.lab import Lab, Whose, seconds


def main(endpoint: str, table: str, whose: Whose, times: int, file: Path) -> None:
    """Count."""
    lab = Lab(endpoint, whose, table)
    client = lab.client(heartbeat_period=seconds(1))
    for _ in range(times):
        with client.acquire_lock("k", retry_period=seconds(0.2), retry_timeout=seconds(170)):
            number = int(file.read_text())
            time.sleep(0.001)
            file.write_text(str(number + 1))
    lab.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], cast("Whose", sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
