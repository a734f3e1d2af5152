"""Workers that use mops and workers that use ours, on one lease."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.dropin.mops_lock.lab import LONG, SHORT, Folder, ours, theirs
from tests.helpers import until

EACH_WAY = pytest.mark.parametrize(
    ("one", "other"), [(ours, theirs), (theirs, ours)], ids=["ours first", "theirs first"]
)
MARGIN = timedelta(seconds=1)


@EACH_WAY
def test_they_exclude_each_other(one: Any, other: Any, folder: Folder) -> None:
    """Held, maintained, released, run out: the other one sees it."""
    held = one.acquire(folder.uri, expire=LONG)
    assert other.acquire(folder.uri, expire=LONG) is None
    folder.age(timedelta(seconds=50))
    held.maintain()
    folder.age(timedelta(seconds=50))
    assert other.acquire(folder.uri, expire=LONG) is None
    held.release()
    second = other.acquire(folder.uri, expire=LONG)
    assert folder.writer() == second.writer_id
    folder.age(timedelta(seconds=61))
    third = one.acquire(folder.uri, expire=LONG)
    assert folder.writer() == third.writer_id


@EACH_WAY
def test_they_wait_for_each_other(one: Any, other: Any, folder: Folder) -> None:
    """Who blocks gets it when the other one releases."""
    held = one.acquire(folder.uri, expire=LONG)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.acquire, folder.uri, expire=LONG, block=None)
        assert not waiting.done()
        held.release()
        assert waiting.result(30).writer_id == folder.writer()


@EACH_WAY
def test_they_keep_each_others_leases(one: Any, other: Any, folder: Folder) -> None:
    """An orchestrator of one kind and a remote of the other."""
    orchestrator = one.acquire(folder.uri, expire=SHORT)
    remote = other.make_remote_lease_writer(folder.uri, orchestrator.writer_id)
    release = other.add_lease_to_maintenance_daemon(remote)
    written = folder.read()["written_at"]
    until(lambda: folder.read()["written_at"] > written)
    orchestrator.maintain()
    assert folder.writer() == orchestrator.writer_id
    release()
    orchestrator.release()
    assert folder.writer() == ""


@EACH_WAY
def test_they_read_each_other(one: Any, other: Any, folder: Folder) -> None:
    """What one writes the other one shows."""
    one.acquire(folder.uri, expire=LONG)
    assert other.read_lease(folder.memo) == one.read_lease(folder.memo) == folder.read()


class Pausing:
    """An old worker that stands still between its look and its write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked, self.go_on = threading.Event(), threading.Event()
        writer = theirs.acquire.__globals__["LeasefileWriter"]
        write = writer.write

        def slow(lease: Any) -> None:
            if not self.looked.is_set():
                self.looked.set()
                self.go_on.wait(30)
            write(lease)

        monkeypatch.setattr(writer, "write", slow)


def test_an_old_worker_writes_over_a_claim(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mops that looked before we wrote, and writes while we wait, wins; we stand back."""
    worker = Pausing(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        old = pool.submit(theirs.acquire, folder.uri, expire=LONG, acquire_margin=MARGIN)
        assert worker.looked.wait(30)
        new = pool.submit(ours.acquire, folder.uri, expire=LONG, acquire_margin=MARGIN)
        until(folder.file.exists)
        worker.go_on.set()
        assert new.result(30) is None
        assert old.result(30).writer_id == folder.writer()


def test_an_old_worker_that_comes_too_late(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mops that stood still between its look and its write takes what is held, as it does
    from its own kind. We learn it when we next maintain, and do not take it back."""
    worker = Pausing(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(theirs.acquire, folder.uri, expire=LONG)
        assert worker.looked.wait(30)
        mine = ours.acquire(folder.uri, expire=LONG)
        assert mine is not None
        worker.go_on.set()
        taken = old.result(30)
    with pytest.raises(ours.LeaseLostError, match=taken.writer_id):
        mine.maintain()
    mine.release()
    assert folder.writer() == taken.writer_id


def count(folder: Folder, tmp_path: Path, kinds: list[str], times: int, margin: float) -> int:
    """What so many workers have counted to."""
    number = tmp_path / "number"
    number.write_text("0")
    module = "tests.dropin.mops_lock.counter"
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", module, kind, folder.uri, str(number), str(times), str(margin)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for kind in kinds
    ]  # fmt: skip
    for worker in workers:
        output, _ = worker.communicate(timeout=100)
        assert worker.returncode == 0, output
    return int(number.read_text())


def test_new_workers_lose_no_count(folder: Folder, tmp_path: Path) -> None:
    """Processes of our kind are exact, without any margin."""
    assert count(folder, tmp_path, ["ours"] * 4, 15, 0) == 60


def test_old_and_new_workers_lose_no_count(folder: Folder, tmp_path: Path) -> None:
    """With a margin longer than anybody stands still, old and new ones exclude each other."""
    assert count(folder, tmp_path, ["theirs", "ours", "theirs", "ours"], 1, 0.4) == 4
