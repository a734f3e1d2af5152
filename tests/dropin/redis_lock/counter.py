"""A worker that counts under a lock: reads a number, thinks, and writes one more.

python -m tests.dropin.redis_lock.counter PORT theirs|ours sync|async TIMES
"""

from __future__ import annotations

import sys
import time
from typing import cast

from tests.dropin.redis_lock.lab import Face, Lab, Whose


def main(port: int, whose: Whose, face: Face, times: int) -> None:
    """Count."""
    lab = Lab(port, whose, face)
    own = {"keep": True, "push": True} if whose == "ours" else {}
    lock = lab.lock("counting", timeout=10, sleep=0.002, **own)
    for _ in range(times):
        lab.do(lock.acquire())
        number = int(lab.raw.get("number") or 0)
        time.sleep(0.001)
        lab.raw.set("number", number + 1)
        lab.do(lock.release())
    lab.close()


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        cast("Whose", sys.argv[2]),
        cast("Face", sys.argv[3]),
        int(sys.argv[4]),
    )
