"""Many processes on one blob: nothing is lost, and the dead and the stopped are survived."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.core.records import SECOND
from tests.helpers import until
from tests.stores.processes import (
    crowd,
    holder,
    outlive_a_stopped_holder,
    succeed_a_killed_holder,
)

pytestmark = pytest.mark.timeout(200)


def test_eight_processes_lose_no_increment(url: str, tmp_path: Path) -> None:
    """8 processes x 30 acquisitions on one key, each a read-modify-write of a file."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    crowd(8, "count", url, "k", str(counter), "30")
    assert counter.read_text() == str(8 * 30)


def test_permits(url: str, tmp_path: Path) -> None:
    """With a limit of 3 there are never more than 3 in."""
    folder = tmp_path / "inside"
    folder.mkdir()
    assert crowd(4, "permit", url, "k", str(folder), "5", "3") == [""] * 4


def test_a_killed_holder_is_succeeded(url: str) -> None:
    """The dead block for the ttl, and no longer."""
    succeed_a_killed_holder(url)


def test_a_stopped_holder_knows_its_loss(url: str) -> None:
    """Who was stopped for too long is told, and harms nobody."""
    outlive_a_stopped_holder(url)


def test_a_new_process_takes_over_at_once(url: str) -> None:
    """Whoever comes long after a holder died need not watch it first."""
    with holder(url, ttl=1) as (taker, fence):
        taker.send_signal(signal.SIGKILL)
        taker.wait(10)
        with holdfast.connect(url) as watching:
            until(lambda: not watching.show("k").holders)
            time.sleep(watching.facts.clock_doubt / SECOND)  # of the next one's reading
    with holdfast.connect(url) as locks:
        lease = locks.try_acquire("k")
        assert lease is not None
        assert lease.fence > fence
        lease.release()


FORK = """
import os, sys, holdfast
url = sys.argv[1]

def in_child(locks):
    if os.fork() == 0:
        try:
            locks.acquire("k", timeout=20).release()
            with holdfast.connect(url) as mine:
                mine.acquire("k", timeout=20).release()
            print("worked", flush=True)
        except holdfast.ClientForked as why:
            print("told" if "fork" in str(why) else why, flush=True)
        os._exit(0)
    os.wait()

with holdfast.connect(url) as locks:
    in_child(locks)
    locks.acquire("k").release()
    in_child(locks)
    locks.acquire("k", timeout=20).release()
    print("parent", flush=True)
"""


def test_forks(url: str) -> None:
    """A forked child works, unless its parent has used a bucket before, which it is told; it never
    hangs, nor harms its parent."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, url], capture_output=True, text=True, timeout=60, check=True
    )
    said = "worked" if url.startswith("file:") else "told"
    assert done.stdout.split() == ["worked", said, "parent"], done.stderr[-2000:]
