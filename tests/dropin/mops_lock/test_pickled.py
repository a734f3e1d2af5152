"""Leases and their releases in other processes: mops' futures cross them."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.dropin.mops_lock.lease_file import join
from tests.conformance.blob_targets import azure_url
from tests.dropin.mops_lock.lab import LONG, MODULES, SHORT, Folder, ours
from tests.engines.azurite import ACCOUNT_KEY, Azurite
from tests.engines.shared import shared
from tests.helpers import until

BOTH = pytest.mark.parametrize("lease", MODULES.values(), ids=MODULES)
LOAD = "import pickle, sys; it = pickle.load(sys.stdin.buffer); "


def elsewhere(thing: Any, do: str, cwd: Path | None = None) -> str:
    """Do something with a copy of this in another process; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD + do],
        input=pickle.dumps(thing), capture_output=True, check=False, timeout=60, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@BOTH
def test_a_lease_crosses_processes(lease: Any, folder: Folder) -> None:
    """It is maintained and released there as it would be here."""
    acquired = lease.acquire(folder.uri, expire=LONG)
    assert elsewhere(acquired, "print(it.writer_id, it.expire_s)") == f"{acquired.writer_id} 60.0"
    before = folder.read()
    elsewhere(acquired, "it.maintain()")
    assert folder.read()["written_at"] > before["written_at"]
    assert folder.read()["pid"] != str(os.getpid())
    acquired.maintain()  # the version that it knew has been replaced, by itself
    assert folder.writer() == acquired.writer_id
    elsewhere(acquired, "it.release()")
    assert folder.writer() == ""


@BOTH
@pytest.mark.parametrize("maintained", [True, False])
def test_a_release_crosses_processes(lease: Any, folder: Folder, maintained: bool) -> None:
    """What `maintain_to_release` gives is called where the result of the work is wanted."""
    acquired = lease.acquire(folder.uri, expire=LONG)
    release = lease.maintain_to_release(acquired) if maintained else acquired.release
    elsewhere(release, "it()")
    assert folder.writer() == ""


def test_what_was_released_elsewhere_is_not_maintained(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one's lease is left alone, and nobody is alarmed: it was given back. (mops' own
    goes on, and takes it from the next one.)"""
    acquired = ours.acquire(folder.uri, expire=SHORT)
    release = ours.maintain_to_release(acquired)
    with caplog.at_level(logging.INFO, "holdfast"):
        elsewhere(release, "it()")
        assert folder.writer() == ""
        until(lambda: "was released elsewhere" in caplog.text)
    assert "was lost" not in caplog.text
    second = ours.acquire(folder.uri, expire=LONG)
    time.sleep(2 * SHORT.total_seconds())
    assert folder.writer() == second.writer_id
    release()
    assert folder.writer() == second.writer_id
    with pytest.raises(ours.LeaseLostError):
        acquired.maintain()


def test_a_copy_in_the_same_process(folder: Folder) -> None:
    """Its release ends the maintenance of the first one."""
    release = ours.maintain_to_release(ours.acquire(folder.uri, expire=SHORT))
    pickle.loads(pickle.dumps(release))()
    after = folder.read()
    time.sleep(2 * SHORT.total_seconds())
    assert folder.read() == after


def test_a_remote_crosses_processes(folder: Folder) -> None:
    """It cannot be released there either."""
    acquired = ours.acquire(folder.uri, expire=LONG)
    remote = ours.make_remote_lease_writer(folder.uri, acquired.writer_id)
    elsewhere(remote, "it.maintain(); it.release()")
    assert folder.read()["writer_name"] == "remote"
    assert folder.writer() == acquired.writer_id


def test_a_lost_lease_stays_lost(folder: Folder) -> None:
    """Wherever it goes."""
    acquired = ours.acquire(folder.uri, expire=LONG)
    folder.write({**folder.read(), "writer_id": "another"})
    with pytest.raises(ours.LeaseLostError):
        acquired.maintain()
    copy = pickle.loads(pickle.dumps(acquired))
    assert copy.lost.is_set()
    with pytest.raises(ours.LeaseLostError, match="another"):
        copy.maintain()


def test_a_relative_path(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means the same place for a process that runs in another folder."""
    monkeypatch.chdir(tmp_path)
    acquired = ours.acquire("memo/lock", expire=LONG)
    elsewhere(acquired, "it.release()", cwd=Path("/"))
    assert folder.writer() == ""


def test_a_lease_in_a_bucket() -> None:
    """With the options of its URI, which may have credentials in them."""
    uri = join(azure_url(shared(Azurite)), "lock")
    acquired = ours.acquire(uri, expire=LONG)
    elsewhere(acquired, "it.maintain(); it.release()")
    assert ours.acquire(uri, expire=LONG) is not None
    assert ACCOUNT_KEY not in repr(acquired)
