"""A worker that counts under a lease: reads a number, thinks, and writes one more.

python -m tests.dropin.mops_lock.counter theirs|ours URI FILE TIMES MARGIN
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any


def module(whose: str) -> Any:
    """mops takes a while to import: only who uses it does so."""
    if whose == "ours":
        from holdfast.dropin import mops_lock

        return mops_lock
    from tests.dropin.mops_lock.lab import theirs

    return theirs


def main(whose: str, uri: str, name: str, times: int, margin: float) -> None:
    """Count."""
    logging.disable()
    lease, file = module(whose), Path(name)
    options = {"beside_mops": False} if not margin else {}
    for _ in range(times):
        acquired = lease.acquire(
            uri,
            expire=timedelta(seconds=60),
            acquire_margin=timedelta(seconds=margin),
            block=None,
            **options,
        )
        number = int(file.read_text())
        time.sleep(0.001)
        file.write_text(str(number + 1))
        acquired.release()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
