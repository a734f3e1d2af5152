"""A tiny program that takes locks, for tests that kill, stop or crowd processes.

python tests/taker.py hold URL KEY TTL           hold it; print "held FENCE", then "lost"
python tests/taker.py count URL KEY FILE TIMES   count a file up under the lock
python tests/taker.py share URL KEY FILE TIMES   readers and writers: check a file's pairs
python tests/taker.py permit URL KEY FOLDER TIMES LIMIT   check how many are in at once
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import holdfast


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def hold(locks: holdfast.Locks, key: str, ttl: str) -> None:
    """Hold a lock until told to stop, and say when it is lost."""
    lease = locks.acquire(key, ttl=float(ttl))
    say(f"held {lease.fence}")
    lease.lost.wait()
    say(f"lost {lease.held}")
    try:
        lease.check()
    except holdfast.LeaseLost:
        say("refused")


def count(locks: holdfast.Locks, key: str, name: str, times: str) -> None:
    """Read, add one, write: whoever is not alone loses a count."""
    path = Path(name)
    for _ in range(int(times)):
        with locks.acquire(key, timeout=120):
            path.write_text(str(int(path.read_text()) + 1))


def share(locks: holdfast.Locks, key: str, name: str, times: str) -> None:
    """Writers write a number twice, in two steps; readers must never see it half done."""
    path = Path(name)
    for turn in range(int(times)):
        if turn % 4 == 0:
            with locks.acquire(key, timeout=120):
                number = int(path.read_text().split()[0]) + 1
                path.write_text(f"{number} ")
                time.sleep(0.0005)
                path.write_text(f"{number} {number}")
        else:
            with locks.acquire(key, mode="shared", timeout=120):
                one, two = path.read_text().split()
                if one != two:
                    say("torn")


def permit(locks: holdfast.Locks, key: str, folder: str, times: str, limit: str) -> None:
    """Everyone who is in has a file in a folder; there are never more than permits."""
    mine = Path(folder) / str(random.getrandbits(64))
    for _ in range(int(times)):
        with locks.acquire(key, limit=int(limit), timeout=120):
            mine.touch()
            if len(list(Path(folder).iterdir())) > int(limit):
                say("crowded")
            mine.unlink()


def main() -> None:
    """Do what the arguments say."""
    what, url, *rest = sys.argv[1:]
    acts = {"hold": hold, "count": count, "share": share, "permit": permit}
    with holdfast.connect(url) as locks:
        acts[what](locks, *rest)  # type: ignore[operator]


if __name__ == "__main__":
    main()
