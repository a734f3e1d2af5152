"""A tiny program that takes locks, for tests that kill, stop or crowd processes.

python tests/taker.py hold URL KEY TTL           hold it; print "held FENCE", then "lost"
python tests/taker.py count URL KEY FILE TIMES   count a file up under the lock
python tests/taker.py churn URL KEY FILE TIMES   the same, with clients that come and go
python tests/taker.py share URL KEY FILE TIMES   readers and writers: check a file's pairs
python tests/taker.py permit URL KEY FOLDER TIMES LIMIT   check how many are in at once
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
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
    for _ in range(int(times)):
        count_once(locks, key, name)


def count_once(locks: holdfast.Locks, key: str, name: str) -> None:
    """Once."""
    path = Path(name)
    with locks.acquire(key, timeout=120):
        path.write_text(str(int(path.read_text()) + 1))


def churn(locks: holdfast.Locks, key: str, name: str, times: str) -> None:
    """The same while other clients come and go, here and in children that are forked."""
    url, clients = sys.argv[2], [locks]
    for _ in range(int(times)):
        dice = random.random()
        if dice < 0.3:
            clients.append(holdfast.connect(url))
        elif dice < 0.6 and len(clients) > 1:
            clients.pop(random.randrange(len(clients))).close()
        elif dice < 0.7:
            in_child(lambda: holdfast.connect(url).acquire(key, timeout=120).release())
        count_once(random.choice(clients), key, name)
    for client in clients:
        client.close()


def in_child(act: Callable[[], object]) -> None:
    """Fork, and have the child do this."""
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


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
    acts = {"hold": hold, "count": count, "churn": churn, "share": share, "permit": permit}
    with holdfast.connect(url) as locks:
        acts[what](locks, *rest)  # type: ignore[operator]


if __name__ == "__main__":
    main()
