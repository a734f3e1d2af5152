"""Many processes on one SQLite file: nothing is lost, and the dead and the stopped are survived."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast

TAKER = str(Path(__file__).parents[1] / "taker.py")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file of its own."""
    return f"sqlite://{tmp_path}/locks.db"


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


def test_sixteen_processes_lose_no_increment(url: str, tmp_path: Path) -> None:
    """16 processes x 200 acquisitions on one key, each a read-modify-write of a file."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    crowd(16, "count", url, "k", str(counter), "200")
    assert counter.read_text() == str(16 * 200)


def test_readers_and_writers(url: str, tmp_path: Path) -> None:
    """Readers among writers never see a half-done write, and no write is lost."""
    data = tmp_path / "data"
    data.write_text("0 0")
    assert crowd(6, "share", url, "k", str(data), "60") == [""] * 6
    assert data.read_text() == f"{6 * 15} {6 * 15}"


def test_permits(url: str, tmp_path: Path) -> None:
    """With a limit of 3 there are never more than 3 in."""
    folder = tmp_path / "inside"
    folder.mkdir()
    assert crowd(6, "permit", url, "k", str(folder), "40", "3") == [""] * 6
    assert list(folder.iterdir()) == []


def test_a_killed_holder_is_succeeded(url: str) -> None:
    """`kill -9` on a holder lets the next one in within about the ttl, with a larger fence."""
    with holdfast.connect(url) as locks, holder(url, ttl=1) as (taker, fence):
        assert locks.try_acquire("k") is None
        taker.send_signal(signal.SIGKILL)
        taker.wait(10)
        with locks.acquire("k", timeout=20) as lease:
            assert lease.fence > fence


def test_a_stopped_holder_knows_its_loss(url: str) -> None:
    """A holder that was stopped for longer than its ttl says that it lost, and the fence of
    its successor is larger."""
    with holdfast.connect(url) as locks, holder(url, ttl=0.7) as (taker, fence):
        os.kill(taker.pid, signal.SIGSTOP)
        with locks.acquire("k", timeout=20) as lease:
            assert lease.fence > fence
            os.kill(taker.pid, signal.SIGCONT)
            out, err = taker.communicate(timeout=20)
            assert out.split() == ["lost", "False", "refused"]
            assert "Lost lock k" in err or "Lost lock k" in out
            lease.renew()
            assert lease.held


def test_a_killed_waiter_drops_out(url: str) -> None:
    """A waiter that was killed in the queue holds nobody up for longer than its patience."""
    program = "import sys, holdfast\nholdfast.connect(sys.argv[1]).acquire('k', fair=True, ttl=0.7)"
    with holdfast.connect(url) as locks:
        lease = locks.acquire("k", ttl=60)
        waiter = subprocess.Popen([sys.executable, "-c", program, url], stderr=subprocess.DEVNULL)
        try:
            while not locks.show("k").waiters:
                assert waiter.poll() is None
        finally:
            waiter.kill()
            waiter.wait(10)
        lease.release()
        with locks.acquire("k", timeout=20):
            pass


def test_many_processes_create_the_file(url: str, tmp_path: Path) -> None:
    """Those who find no file agree on one."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    crowd(6, "count", url, "k", str(counter), "5")
    assert counter.read_text() == "30"
