"""The process that is stopped: `python -m tests.stale_writers.holder`, told by JSON on stdin.

It stops itself between check and write; or, where it is to write all the time, it is stopped at any
instruction.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from typing import Any

import holdfast
from holdfast import LeaseLost, StaleFence
from holdfast.fencing import Fence
from tests.stale_writers.targets import TARGETS, Target


def main() -> None:
    """Take all locks, check all leases, stop; go on, and write. Or write all the time."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    told = json.loads(sys.stdin.readline())
    locks = holdfast.connect(told["locks"])
    targets = {name: TARGETS[name](address) for name, address in told["addresses"].items()}
    writes = told["writes"]
    ready = threading.Barrier(len(writes) + 1)
    go_on = threading.Event()
    outcomes: dict[str, str] = {}

    def write(one: dict[str, Any]) -> None:
        act = _keep_writing if told["busy"] else _write
        outcomes[one["name"]] = act(locks, targets[one["target"]], one, ready, go_on)

    threads = [threading.Thread(target=write, args=(one,), daemon=True) for one in writes]
    for thread in threads:
        thread.start()
    ready.wait(120)
    sys.stdout.write("checked\n")
    sys.stdout.flush()
    if not told["busy"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    go_on.set()
    for thread in threads:
        thread.join(120)
    sys.stdout.write(json.dumps(outcomes) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _write(
    locks: holdfast.Locks,
    target: Target,
    one: dict[str, Any],
    ready: threading.Barrier,
    go_on: threading.Event,
) -> str:
    fence = _checked(locks, one["name"])

    def pause() -> None:
        ready.wait(120)
        go_on.wait()

    try:
        guard = fence if one["guarded"] else None
        if one["inside"]:
            target.write(one["name"], "old", guard, pause)
        else:
            pause()
            target.write(one["name"], "old", guard)
    except StaleFence:
        return "stale"
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return "written"


def _keep_writing(
    locks: holdfast.Locks,
    target: Target,
    one: dict[str, Any],
    ready: threading.Barrier,
    go_on: threading.Event,
) -> str:
    lease = locks.acquire(one["name"], ttl=2)
    ready.wait(120)
    go_on.wait()
    while True:
        try:
            lease.check()
            target.write(one["name"], "old", lease if one["guarded"] else None)
        except StaleFence:
            return "stale"
        except LeaseLost:
            return "lost"
        except Exception as exc:
            return f"{type(exc).__name__}: {exc}"


def _checked(locks: holdfast.Locks, name: str) -> Fence:
    """Returns the fence of a lease that was checked just now. The lease itself would notice after
    the stop that it is lost; but a process can stop right after it has looked."""
    while True:
        lease = locks.acquire(name, ttl=2)
        try:
            lease.check()
        except LeaseLost:  # the machine is busy
            continue
        _kept.append(lease)
        return Fence(lease.key, lease.fence)


_kept: list[holdfast.Lease] = []


if __name__ == "__main__":
    main()
