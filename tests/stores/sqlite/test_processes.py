"""Many processes on one SQLite file: nothing is lost, and the dead and the stopped are survived."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.helpers import until
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


def test_clients_come_and_go(url: str, tmp_path: Path) -> None:
    """None of them takes the file's log away from under another one."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    crowd(6, "churn", url, "k", str(counter), "60")
    assert counter.read_text() == str(6 * 60)


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


def free_elsewhere(url: str, *keys: str) -> list[str]:
    """Which of these locks another process finds free, as it comes and goes."""
    program = (
        "import sys, holdfast\n"
        "with holdfast.connect(sys.argv[1]) as locks:\n"
        "    print(*(key for key in sys.argv[2:] if locks.try_acquire(key)))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, url, *keys], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_two_clients_of_a_process(url: str) -> None:
    """Whoever closes a handle of a file ends all locks that SQLite has on it in this process.
    Then the next process to leave believes to be the last, and deletes the log."""
    with holdfast.connect(url) as one, one.acquire("a", ttl=60):
        with holdfast.connect(url) as two, two.acquire("b", ttl=60):
            assert free_elsewhere(url, "a", "b", "c") == ["c"]
            with one.acquire("d", ttl=60), two.acquire("e", ttl=60):
                assert free_elsewhere(url, "a", "b", "d", "e") == []
        with one.acquire("f", ttl=60):
            assert free_elsewhere(url, "a", "f") == []


def test_a_stranger_in_the_process_reads_the_file(url: str, tmp_path: Path) -> None:
    """It ends SQLite's locks in the same way, which nobody can prevent: it is told."""
    with holdfast.connect(url) as locks, locks.acquire("a", ttl=60):
        (tmp_path / "locks.db").read_bytes()
        free_elsewhere(url, "b")
        until(lambda: raises_misconfigured(locks))


def raises_misconfigured(locks: holdfast.Locks) -> bool:
    """Whether the file is found to be cut off."""
    try:
        locks.acquire("c", timeout=5).release()
    except holdfast.Misconfigured as told:
        return "log was deleted" in str(told)
    return False
