"""Many processes on one SQLite file: nothing is lost, and the dead and the stopped are survived."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.stores.processes import crowd, outlive_a_stopped_holder, succeed_a_killed_holder


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file of its own."""
    return f"sqlite://{tmp_path}/locks.db"


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
    """The dead block for the ttl, and no longer."""
    succeed_a_killed_holder(url)


def test_a_stopped_holder_knows_its_loss(url: str) -> None:
    """Who was stopped for too long is told, and harms nobody."""
    outlive_a_stopped_holder(url)


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
