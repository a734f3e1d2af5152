"""The orchestrator: gets every part computed, by a remote of its own or by one that is at it.

python -m examples.orchestrator.orchestrator NAME       with HOLDFAST_URL
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import holdfast
from examples.orchestrator import results
from examples.orchestrator.parts import PARTS, PAUSE_S, TTL_S

HERE = Path(__file__).parent


def obtain(locks: holdfast.Locks, part: str) -> int:
    """The result of a part, computed at most once however many ask for it."""
    key = f"squares:{part}"
    while (result := results.read(part)) is None:
        lease = locks.try_acquire(key, note={"part": part})
        if lease is None:
            attach(locks, key)
        elif results.read(part) is not None:  # finished between our look and our lock
            lease.release()
        else:
            run_remote(lease, part)
    return result


def attach(locks: holdfast.Locks, key: str) -> None:
    """Somebody is at it: say who, and wait for the end of it."""
    for holder in locks.show(key).holders:
        part, age = holder.note["part"], holder.age
        say(f"{part}: at work for {age:.1f} s, started by {holder.owner}. I wait for it.")
    locks.wait_until_free(key)


def run_remote(lease: holdfast.Lease, part: str) -> None:
    """Start a remote that shares the lease, and wait for it. If we die, it goes on alone;
    it may also end the lease, so that nobody has to wait for the ttl then."""
    say(f"{part}: not computed yet. I start a remote.")
    ticket = lease.share(release=True)
    remote = subprocess.Popen(
        command(part),
        env={**os.environ, "HOLDFAST_TICKET": ticket, "HOLDFAST_RUN_JOIN": ticket},
        cwd=HERE.parents[1],
        start_new_session=True,  # a remote: what happens to us does not happen to it
    )
    code = remote.wait()
    lease.release()  # if the remote did not do so
    if code:
        raise RuntimeError(f"the remote for {part} failed with {code}")


def command(part: str) -> list[str]:
    """One remote joins the lease by itself, for the other one `holdfast run` does it."""
    if part == "even":
        return [sys.executable, "-m", "examples.orchestrator.worker", part]
    program = ["sh", str(HERE / "worker.sh"), part, str(PAUSE_S), *map(str, PARTS[part])]
    return [sys.executable, "-m", "holdfast", "run", "--", *program]


def say(text: str) -> None:
    """One line, in one piece."""
    sys.stdout.write(f"      {sys.argv[1]}: {text}\n")
    sys.stdout.flush()


def main(name: str) -> None:
    """All parts at once."""
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # who waits for whom we say ourselves
    with holdfast.connect(owner=name, ttl=TTL_S) as locks, ThreadPoolExecutor(len(PARTS)) as pool:
        total = sum(pool.map(partial(obtain, locks), PARTS))
    say(f"the result is {total}.")


if __name__ == "__main__":
    main(sys.argv[1])
