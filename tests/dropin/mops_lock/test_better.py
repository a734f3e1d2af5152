"""What mops gets wrong, and what happens here instead."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast.dropin import mops_lock as lease
from holdfast.dropin.mops_lock import acquiring
from holdfast.dropin.mops_lock.lease_file import Found, LeaseFile, open_lease_file
from holdfast.errors import CorruptRecord, HoldfastError, OutcomeUnknown, Unavailable
from tests.dropin.mops_lock.lab import LONG, SHORT, Folder, race
from tests.helpers import until


class Faulty:
    """A file that fails on cue: before a write, or after it."""

    def __init__(self, file: LeaseFile) -> None:
        self.uri, self.compares = file.uri, file.compares
        self.lease_dir_uri = file.lease_dir_uri
        self._file = file
        self.away = False
        self.lose_replies = 0
        self.failed = 0

    def read(self) -> Found | None:
        self._check()
        return self._file.read()

    def swap(self, version: Any | None, body: bytes) -> Any | None:
        self._check()
        done = self._file.swap(version, body)
        if self.lose_replies:
            self.lose_replies -= 1
            raise OutcomeUnknown("the reply was lost")
        return done

    def _check(self) -> None:
        if self.away:
            self.failed += 1
            raise Unavailable("the store is away")


def got(acquired: Any) -> Any:
    """What must have been acquired."""
    assert acquired is not None
    return acquired


def faulty(acquired: Any) -> Faulty:
    """Let this lease's store fail from now on."""
    acquired._file = Faulty(acquired._file)
    file: Faulty = acquired._file
    return file


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> Faulty:
    """The store of those who acquire from now on."""
    file = Faulty(open_lease_file(folder.uri))
    monkeypatch.setattr(acquiring, "open_lease_file", lambda uri: file)
    return file


# --- stale parties --------------------------------------------------------------------------


@pytest.mark.parametrize("released", [False, True], ids=["held by another", "released by another"])
def test_a_stale_maintain_takes_nothing_back(folder: Folder, released: bool) -> None:
    """Who was away for too long learns that it is lost, and the new owner's file stays."""
    stale = got(lease.acquire(folder.uri, expire=LONG))
    folder.age(timedelta(seconds=61))
    owner = got(lease.acquire(folder.uri, expire=LONG))
    if released:
        owner.release()
    before = folder.read()
    for _ in range(2):
        with pytest.raises(lease.LeaseLostError, match=owner.writer_id):
            stale.maintain()
    assert stale.lost.is_set()
    assert folder.read() == before
    if not released:
        owner.maintain()
        assert folder.writer() == owner.writer_id


def test_a_stale_release_frees_nobody_else(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not ours to give back; that is logged, and no error."""
    stale = got(lease.acquire(folder.uri, expire=LONG))
    folder.age(timedelta(seconds=61))
    owner = got(lease.acquire(folder.uri, expire=LONG))
    before = folder.read()
    with caplog.at_level(logging.WARNING, "holdfast"):
        stale.release()
    assert owner.writer_id in caplog.text
    assert folder.read() == before
    stale.release()
    owner.maintain()


def test_a_stale_remote_takes_nothing_back(folder: Folder) -> None:
    """The same for the other party."""
    orchestrator = got(lease.acquire(folder.uri, expire=LONG))
    remote = lease.make_remote_lease_writer(folder.uri, orchestrator.writer_id)
    folder.age(timedelta(seconds=61))
    owner = got(lease.acquire(folder.uri, expire=LONG))
    for party in (orchestrator, remote):
        with pytest.raises(lease.LeaseLostError):
            party.maintain()
    assert folder.writer() == owner.writer_id


def test_what_was_released_stays_released(folder: Folder) -> None:
    """Neither party brings a released lease back to life, nor does a remote that comes late."""
    orchestrator = got(lease.acquire(folder.uri, expire=LONG))
    remote = lease.make_remote_lease_writer(folder.uri, orchestrator.writer_id)
    orchestrator.release()
    for party in (orchestrator, remote):
        with pytest.raises(lease.LeaseLostError, match="released"):
            party.maintain()
    with pytest.raises(lease.LeaseLostError, match="released"):
        lease.make_remote_lease_writer(folder.uri, orchestrator.writer_id)
    assert folder.writer() == ""
    orchestrator.release()


def test_a_file_that_is_gone_is_a_loss(folder: Folder) -> None:
    """Somebody removed it, and others may have come and gone since."""
    acquired = got(lease.acquire(folder.uri, expire=LONG))
    folder.file.unlink()
    with pytest.raises(lease.LeaseLostError, match="gone"):
        acquired.maintain()
    assert not folder.file.exists()


def test_a_remote_starts_with_all_of_expire(folder: Folder) -> None:
    """It is maintained at once: a lease that had nearly run out, or that ran out and nobody
    took, lasts for all of `expire` from the remote's start."""
    orchestrator = got(lease.acquire(folder.uri, expire=LONG))
    for age in (59, 61):
        folder.age(timedelta(seconds=age))
        lease.make_remote_lease_writer(folder.uri, orchestrator.writer_id)
        assert lease.acquire(folder.uri, expire=LONG) is None
    orchestrator.maintain()


def test_parties_go_back_and_forth(folder: Folder) -> None:
    """Two parties that write at once, and neither loses the lease."""
    orchestrator = got(lease.acquire(folder.uri, expire=LONG))
    parties = [orchestrator] + [lease.make_remote_lease_writer(folder.uri) for _ in range(3)]

    def write(party: Any) -> None:
        for _ in range(30):
            party.maintain()

    with ThreadPoolExecutor(len(parties)) as pool:
        list(pool.map(write, parties))
    assert folder.writer() == orchestrator.writer_id


# --- the daemon -----------------------------------------------------------------------------


def test_failures_are_tried_again(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    """A store that is away, for longer than the lease lasts, does not end the maintenance;
    that is logged, and the lease goes on if nobody took it."""
    acquired = got(lease.acquire(folder.uri, expire=SHORT))
    file = faulty(acquired)
    release = lease.add_lease_to_maintenance_daemon(acquired)
    file.away = True
    with caplog.at_level(logging.WARNING, "holdfast"):
        until(lambda: "Still trying to renew" in caplog.text)
        failures = file.failed
        until(lambda: file.failed > failures)
    assert "the store is away" in caplog.text
    assert not acquired.lost.is_set()
    stale = folder.read()["write_count"]
    file.away = False
    until(lambda: folder.read()["write_count"] > stale)
    release()
    assert folder.writer() == ""


def test_one_failing_lease_costs_no_other(folder: Folder, tmp_path: Any) -> None:
    """Each is maintained on its own."""
    sick = got(lease.acquire(folder.uri, expire=SHORT))
    well = got(lease.acquire(f"file://{tmp_path}/well", expire=SHORT))
    faulty(sick).away = True
    releases = [lease.add_lease_to_maintenance_daemon(each) for each in (sick, well)]
    other = Folder(tmp_path)
    other.file = tmp_path / "well" / "lock.json"
    first = other.read()["write_count"]
    until(lambda: other.read()["write_count"] > first + 3)
    sick._file.away = False
    for release in releases:
        release()


def test_one_hanging_lease_costs_no_other(folder: Folder) -> None:
    """A write that does not come back, for longer than the lease lasts, holds up nobody."""
    hangs, go_on = threading.Event(), threading.Event()

    class Hanging:
        writer_id, expire_s = "hanging", 0.2
        released = False

        def maintain(self) -> None:
            hangs.set()
            go_on.wait(30)

        def release(self) -> None:
            self.released = True

    hanging = Hanging()
    stuck = lease.add_lease_to_maintenance_daemon(hanging)
    assert hangs.wait(20)
    release = lease.add_lease_to_maintenance_daemon(got(lease.acquire(folder.uri, expire=SHORT)))
    first = folder.read()["write_count"]
    until(lambda: folder.read()["write_count"] > first + 4)
    release()
    go_on.set()
    stuck()
    assert hanging.released


def test_a_loss_is_told(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    """The daemon stops maintaining what is somebody else's, says so, and sets `lost`."""
    acquired = got(lease.acquire(folder.uri, expire=SHORT))
    release = lease.add_lease_to_maintenance_daemon(acquired)
    with caplog.at_level(logging.ERROR, "holdfast"):
        folder.write({**folder.read(), "writer_id": "another", "expire_s": 60})
        assert acquired.lost.wait(20)
        until(lambda: "was lost: it is held by another writer" in caplog.text)
    release()
    assert folder.writer() == "another"
    assert lease.add_lease_to_maintenance_daemon(acquired) is not release


def test_release_waits_for_a_maintain_under_way(folder: Folder) -> None:
    """What is maintained last is not written over the release."""
    acquired = got(lease.acquire(folder.uri, expire=LONG))
    file, began, go_on = acquired._file, threading.Event(), threading.Event()

    class Slow:
        uri = file.uri
        read = file.read

        def swap(self, version: Any, body: bytes) -> Any:
            began.set()
            go_on.wait(20)
            return file.swap(version, body)

    acquired._file = Slow()
    with ThreadPoolExecutor(2) as pool:
        maintaining = pool.submit(acquired.maintain)
        assert began.wait(20)
        releasing = pool.submit(acquired.release)
        go_on.set()
        maintaining.result(20)
        releasing.result(20)
    assert folder.writer() == ""


# --- lost replies and races -----------------------------------------------------------------


def test_lost_replies(folder: Folder, fault: Faulty) -> None:
    """A write whose reply was lost counts once: nothing is lost and nothing hidden by it."""
    fault.lose_replies = 1
    acquired = got(lease.acquire(folder.uri, expire=LONG))
    for _ in range(2):
        fault.lose_replies = 1
        acquired.maintain()
    fault.lose_replies = 1
    acquired.release()
    assert folder.writer() == ""
    assert folder.read()["writer_id"] == acquired.writer_id


def test_a_write_that_arrives_late_is_ours(folder: Folder, fault: Faulty) -> None:
    """A write that was given up on, and is there when we look again, is no other's."""
    late: list[bytes] = []
    swap = fault.swap

    def slow(version: Any, body: bytes) -> Any:
        if not late:
            late.append(body)
            raise OutcomeUnknown("it is still on its way")
        if len(late) == 1:
            late.append(body)
            folder.write(late[0])
        return swap(version, body)

    fault.swap = slow  # type: ignore[method-assign]
    acquired = got(lease.acquire(folder.uri, expire=LONG, block=timedelta(seconds=20)))
    assert folder.writer() == acquired.writer_id
    acquired.maintain()
    acquired.release()
    assert folder.writer() == ""


@pytest.mark.parametrize("beside_mops", [True, False])
def test_one_of_many_gets_it(folder: Folder, beside_mops: bool) -> None:
    """Of those who see it free at once, one gets it, again and again."""
    for _ in range(15):
        (winner,) = race(folder.uri, 8, beside_mops=beside_mops)
        winner.release()


@pytest.mark.parametrize("where", ["sleep", "read"])
def test_an_interrupt_leaves_nothing(
    folder: Folder, fault: Faulty, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Ctrl-C after the write gives the lease back."""
    reads = []

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    def second_read(original: Callable[[], Found | None]) -> Found | None:
        reads.append(1)
        return interrupted() if len(reads) == 2 else original()

    if where == "sleep":
        monkeypatch.setattr(time, "sleep", interrupted)
    else:
        original = fault.read
        monkeypatch.setattr(fault, "read", lambda: second_read(original))
    with pytest.raises(KeyboardInterrupt):
        lease.acquire(folder.uri, expire=LONG)
    assert folder.writer() == ""


def test_the_holder_says_for_how_long(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    """Not the one who wants it: mops takes a lease of a minute after its own ten seconds."""
    acquired = got(lease.acquire(folder.uri, expire=LONG))
    folder.age(timedelta(seconds=20))
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert lease.acquire(folder.uri, expire=timedelta(seconds=10)) is None
    assert "give all parties the same expire" in caplog.text
    acquired.maintain()


# --- what is no lease -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"{ not json", b"[]", b'{"writer_id": 5}', b'{"writer_id": "x", "written_at": "soon"}']
)
def test_what_is_no_lease_is_left_alone(folder: Folder, body: bytes) -> None:
    """An error that says so, and nothing is overwritten."""
    folder.write(body)
    with pytest.raises(CorruptRecord, match="left alone"):
        lease.acquire(folder.uri)
    assert folder.file.read_bytes() == body


def test_an_empty_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may be about to fill it; if nobody does, that is an error."""
    monkeypatch.setattr(acquiring, "EMPTY_FOR_S", 0.1)
    folder.write(b"")
    with pytest.raises(CorruptRecord, match="empty"):
        lease.acquire(folder.uri, block=None)
    assert folder.file.read_bytes() == b""


def test_a_folder_that_cannot_be(folder: Folder, tmp_path: Any) -> None:
    """A file in its place: there is no lease there, and none can be made."""
    (tmp_path / "memo").write_text("a file")
    with pytest.raises(HoldfastError, match="memo"):
        lease.acquire(folder.uri)
    with pytest.raises(lease.CannotMaintainLease, match="no lease"):
        lease.make_remote_lease_writer(folder.uri)
    assert lease.read_lease(folder.memo) is None
    assert (tmp_path / "memo").read_text() == "a file"


@pytest.mark.parametrize("uri", ["", "file://", "ftp://host/x", None])
def test_what_is_no_place(uri: Any) -> None:
    """A clear error."""
    with pytest.raises(ValueError, match=r"[Ll]ease"):
        lease.acquire(uri)
