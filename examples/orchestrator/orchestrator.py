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

    def find() -> int | None:
        result = results.read(part)
        if result is None:
            tell_who_is_at_it(locks, key)
        return result

    make = partial(run_remote, part=part)
    result: int = locks.once(key, find=find, make=make, note={"part": part})
    return result


def tell_who_is_at_it(locks: holdfast.Locks, key: str) -> None:
    """Say it if somebody else computes this."""
    for holder in locks.show(key).holders:
        if holder.owner != sys.argv[1]:
            part, age = holder.note["part"], holder.age
            say(f"{part}: at work for {age:.1f} s, started by {holder.owner}. I wait for it.")


def run_remote(lease: holdfast.Lease, part: str) -> None:
    """Start a remote that shares the lease, and wait for it. If we die, it goes on alone;
    it may also end the lease, so that nobody has to wait for the ttl then."""
    say(f"{part}: not computed yet. I start a remote.")
    ticket = lease.share(release=True)
    remote = subprocess.Popen(
        command(part),
        env={
            **os.environ,
            "HOLDFAST_TICKET": ticket,
            "HOLDFAST_RUN_JOIN": ticket,
            "PYTHON": sys.executable,
        },
        cwd=HERE.parents[1],
        start_new_session=True,  # a remote: what happens to us does not happen to it
    )
    code = remote.wait()
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
