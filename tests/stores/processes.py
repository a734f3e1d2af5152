"""What many processes do to any store, and what must come of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast

TAKER = str(Path(__file__).parents[1] / "taker.py")


def start(*words: str) -> subprocess.Popen[str]:
    """A taker."""
    return subprocess.Popen(
        [sys.executable, TAKER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def crowd(size: int, *words: str) -> list[str]:
    """Run so many takers at once; what they said."""
    takers = [start(*words) for _ in range(size)]
    said = []
    for taker in takers:
        out, err = taker.communicate(timeout=110)
        assert taker.returncode == 0, err[-2000:]
        said.append(out)
    return said


@contextmanager
def holder(url: str, ttl: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds `k`, and its fence."""
    taker = start("hold", url, "k", str(ttl))
    try:
        assert taker.stdout is not None
        word, fence = taker.stdout.readline().split()
        assert word == "held"
        yield taker, int(fence)
    finally:
        taker.kill()
        taker.communicate()


def succeed_a_killed_holder(url: str) -> None:
    """`kill -9` on a holder lets the next one in within about the ttl, with a larger fence."""
    with holdfast.connect(url) as locks, holder(url, ttl=1) as (taker, fence):
        assert locks.try_acquire("k") is None
        taker.send_signal(signal.SIGKILL)
        taker.wait(10)
        with locks.acquire("k", timeout=30) as lease:
            assert lease.fence > fence


def outlive_a_stopped_holder(url: str) -> None:
    """A holder that was stopped for longer than its ttl says that it lost, and the fence of
    its successor is larger."""
    with holdfast.connect(url) as locks, holder(url, ttl=0.7) as (taker, fence):
        os.kill(taker.pid, signal.SIGSTOP)
        with locks.acquire("k", timeout=30) as lease:
            assert lease.fence > fence
            os.kill(taker.pid, signal.SIGCONT)
            out, err = taker.communicate(timeout=20)
            assert out.split() == ["lost", "False", "refused"]
            assert "Lost lock k" in err or "Lost lock k" in out
            lease.renew()
            assert lease.held
