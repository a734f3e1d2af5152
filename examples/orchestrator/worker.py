"""A remote worker in Python: joins the lease of whoever started it, and keeps it alive.

python -m examples.orchestrator.worker PART        with HOLDFAST_URL and HOLDFAST_TICKET
"""

from __future__ import annotations

import os
import sys
import time

import holdfast
from examples.orchestrator import results
from examples.orchestrator.parts import PARTS, PAUSE_S


def main(part: str) -> None:
    """Compute one part. The lease is ended with it, whether or not its starter lives."""
    with holdfast.connect() as locks, locks.join(os.environ["HOLDFAST_TICKET"]) as lease:
        results.note(f"began {part}")
        total = 0
        for number in PARTS[part]:
            time.sleep(PAUSE_S)
            total += number * number
        results.write(part, total, lease)
        results.note(f"computed {part}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except holdfast.TicketRefused as refused:  # lost before we began: nothing was done
        sys.exit(f"{sys.argv[1]}: {refused}")
