"""The same behaviours of mops' leases and ours."""

from __future__ import annotations

import inspect
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.dropin.mops_lock.lab import LONG, MODULES, SHORT, Folder, ours, theirs
from tests.helpers import until

BOTH = pytest.mark.parametrize("lease", MODULES.values(), ids=MODULES)


def test_all_names_are_there() -> None:
    """Whatever mops exports, with the same arguments; more only by keyword."""
    names = [name for name in vars(theirs) if not name.startswith("_")]
    public = [name for name in names if not inspect.ismodule(getattr(theirs, name))]
    assert set(public) >= {"acquire", "make_remote_lease_writer", "read_lease", "LeaseAcquired"}
    for name in public:
        mine, original = getattr(ours, name), getattr(theirs, name)
        if inspect.isfunction(original):
            extra = list(inspect.signature(mine).parameters.values())
            for want in inspect.signature(original).parameters.values():
                have = extra.pop(0)
                assert (have.name, have.kind, have.default) == (want.name, want.kind, want.default)
            assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in extra)
        elif inspect.isclass(original) and issubclass(original, Exception):
            assert issubclass(mine, ValueError)
            assert issubclass(original, ValueError)
        elif isinstance(original, str):
            assert mine == original


@BOTH
def test_the_file(lease: Any, folder: Folder) -> None:
    """Held, maintained and released, in the same words."""
    acquired = lease.acquire(folder.uri, expire=LONG)
    held = folder.read()
    assert set(held) == {
        "writer_id", "written_at", "expire_s", "write_count", "hostname", "pid", "tid",
        "first_written_at", "first_acquired_at", "released_at",
    }  # fmt: skip
    assert held["writer_id"] == acquired.writer_id
    assert "/" not in acquired.writer_id
    assert held["expire_s"] == acquired.expire_s == 60
    assert held["first_acquired_at"]
    assert held["released_at"] == ""
    assert isinstance(held["pid"], str)
    acquired.maintain()
    maintained = folder.read()
    assert maintained["written_at"] > held["written_at"]
    assert maintained["write_count"] > held["write_count"]
    assert maintained["first_acquired_at"] == held["first_acquired_at"]
    acquired.release()
    released = folder.read()
    assert released["written_at"] == ""
    assert released["released_at"] > maintained["written_at"]
    assert {name: type(value) for name, value in released.items()} == {
        "writer_id": str, "written_at": str, "expire_s": float, "write_count": int,
        "hostname": str, "pid": str, "tid": int, "first_written_at": str,
        "first_acquired_at": str, "released_at": str,
    }  # fmt: skip


@BOTH
def test_one_at_a_time(lease: Any, folder: Folder) -> None:
    """None while somebody has it, and ours once it is free."""
    first = lease.acquire(folder.uri, expire=LONG)
    assert lease.acquire(folder.uri, expire=LONG) is None
    first.release()
    second = lease.acquire(folder.uri, expire=LONG)
    assert second.writer_id != first.writer_id
    assert folder.writer() == second.writer_id


@BOTH
def test_expired(lease: Any, folder: Folder) -> None:
    """A lease that nobody maintains is taken over."""
    lease.acquire(folder.uri, expire=LONG)
    folder.age(timedelta(seconds=61))
    assert lease.acquire(folder.uri, expire=LONG) is not None


@BOTH
def test_block(lease: Any, folder: Folder) -> None:
    """Wait for so long, or as long as it takes."""
    first = lease.acquire(folder.uri, expire=LONG)
    began = time.monotonic()
    assert lease.acquire(folder.uri, expire=LONG, block=timedelta(seconds=0.3)) is None
    assert time.monotonic() - began >= 0.3
    threading.Timer(0.2, first.release).start()
    assert lease.acquire(folder.uri, expire=LONG, block=None) is not None


@BOTH
@pytest.mark.parametrize(
    ("expire", "margin"), [(1, 0.6), (30, -1)], ids=["more than half", "negative"]
)
def test_margins(lease: Any, folder: Folder, expire: float, margin: float) -> None:
    """A margin that makes no sense is a `ValueError`."""
    with pytest.raises(ValueError, match=r"(?i)acquire.margin"):
        lease.acquire(
            folder.uri,
            expire=timedelta(seconds=expire),
            acquire_margin=timedelta(seconds=margin),
        )


@BOTH
def test_a_plain_path(lease: Any, folder: Folder) -> None:
    """A URI without its scheme is a path."""
    acquired = lease.acquire(folder.uri.removeprefix("file://"), expire=LONG)
    assert folder.writer() == acquired.writer_id


@BOTH
def test_spaces_and_signs_in_a_path(lease: Any, tmp_path: Any) -> None:
    """A path is taken as it is, not as a URL's."""
    odd = tmp_path / "a b%20c+ü#?x"
    lease.acquire(f"file://{odd}", expire=LONG)
    assert (odd / "lock.json").exists()


@BOTH
def test_remote(lease: Any, folder: Folder) -> None:
    """A remote maintains its orchestrator's lease, and cannot release it."""
    acquired = lease.acquire(folder.uri, expire=LONG)
    remote = lease.make_remote_lease_writer(folder.uri, acquired.writer_id)
    assert (remote.writer_id, remote.expire_s) == (acquired.writer_id, 60)
    before = folder.read()
    remote.maintain()
    after = folder.read()
    assert after["written_at"] > before["written_at"]
    assert after["writer_name"] == "remote"
    assert after["first_acquired_at"] == before["first_acquired_at"]
    remote.release()
    assert folder.read() == after
    acquired.maintain()
    acquired.release()
    assert folder.writer() == ""


@BOTH
def test_remote_of_nothing(lease: Any, folder: Folder) -> None:
    """No lease, one that says too little, or one that cannot be read."""
    with pytest.raises(lease.CannotMaintainLease):
        lease.make_remote_lease_writer(folder.uri)
    acquired = lease.acquire(folder.uri, expire=LONG)
    sound = folder.read()
    for change in ({"expire_s": 0}, {"expire_s": -1}, {"first_acquired_at": ""}):
        folder.write({**sound, **change})
        with pytest.raises(lease.CannotMaintainLease):
            lease.make_remote_lease_writer(folder.uri, acquired.writer_id)
    folder.write(b"{ not json")
    with pytest.raises(lease.CannotMaintainLease):
        lease.make_remote_lease_writer(folder.uri, acquired.writer_id)


@BOTH
def test_remote_of_another(lease: Any, folder: Folder) -> None:
    """A remote that comes too late is told before it begins, and touches nothing."""
    lease.acquire(folder.uri, expire=LONG)
    before = folder.read()
    with pytest.raises(lease.LeaseLostError, match=r"different|another"):
        lease.make_remote_lease_writer(folder.uri, "somebody-else")
    assert folder.read() == before


@BOTH
def test_daemon(lease: Any, folder: Folder) -> None:
    """The daemon maintains it until it is released; a second registration is the first."""
    acquired = lease.acquire(folder.uri, expire=SHORT)
    release = lease.add_lease_to_maintenance_daemon(acquired)
    assert lease.add_lease_to_maintenance_daemon(acquired) == release
    first = folder.read()["write_count"]
    until(lambda: folder.read()["write_count"] > first + 2)
    release()
    assert folder.writer() == ""
    after = folder.read()
    time.sleep(2 * SHORT.total_seconds())
    assert folder.read() == after


@BOTH
def test_maintain_to_release(lease: Any, folder: Folder) -> None:
    """Maintained in the background; a call ends it."""
    release = lease.maintain_to_release(lease.acquire(folder.uri, expire=SHORT))
    first = folder.read()["write_count"]
    until(lambda: folder.read()["write_count"] > first)
    release()
    assert folder.writer() == ""


@BOTH
def test_any_object_can_be_maintained(lease: Any) -> None:
    """Whatever has the four names of a lease."""

    class Own:
        writer_id = "own"
        expire_s = 0.3
        maintained = released = 0

        def maintain(self) -> None:
            self.maintained += 1

        def release(self) -> None:
            self.released += 1

    own = Own()
    release = lease.add_lease_to_maintenance_daemon(own)
    until(lambda: own.maintained >= 2)
    release()
    assert own.released == 1
    seen = own.maintained
    time.sleep(0.5)
    assert own.maintained == seen


@BOTH
def test_looking(lease: Any, folder: Folder) -> None:
    """Where a lease is and what it says; never an error."""
    assert lease.lease_uri_for(folder.memo) == f"{folder.uri}/lock.json"
    assert lease.lease_uri_for(f"{folder.memo}/") == f"{folder.uri}/lock.json"
    assert lease.LEASE_DIRNAME == "lock"
    assert lease.read_lease(folder.memo) is None
    acquired = lease.acquire(folder.uri, expire=LONG)
    assert lease.read_lease(folder.memo) == folder.read()
    acquired.release()
    assert lease.read_lease(folder.memo) == folder.read()
    folder.write(b"{ not json")
    assert lease.read_lease(folder.memo) is None
    assert lease.read_lease("nonsense://a/b") is None


@pytest.mark.parametrize("memo", ["adls://account/container/memo", "adls://account/container/a/b/"])
def test_where_mops_puts_it_on_azure(memo: str) -> None:
    """The same place in the same container."""
    assert ours.lease_uri_for(memo) == theirs.lease_uri_for(memo)
