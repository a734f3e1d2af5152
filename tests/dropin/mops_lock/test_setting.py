"""Whether leases are maintained in the background, as mops lets it be switched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from thds.mops.pure.core.lease import maintain as their_maintain

from holdfast.dropin.mops_lock import maintain as our_maintain
from tests.dropin.mops_lock.lab import SHORT, Folder, ours, theirs
from tests.helpers import until

BOTH = pytest.mark.parametrize(
    ("lease", "maintain"),
    [(theirs, their_maintain), (ours, our_maintain)],
    ids=["theirs", "ours"],
)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Both settings are put back."""
    theirs_before = their_maintain.MAINTAIN_LEASES.global_value
    ours_before = our_maintain.MAINTAIN_LEASES._of_process
    yield
    their_maintain.MAINTAIN_LEASES.set_global(theirs_before)
    our_maintain.MAINTAIN_LEASES._of_process = ours_before


def is_maintained(lease: Any, folder: Folder) -> bool:
    """Whether a lease that is got now is maintained; it is released in any case."""
    acquired = lease.acquire(folder.uri, expire=SHORT)
    before = folder.read()["write_count"]
    release = lease.maintain_to_release(acquired)
    ends_at = time.monotonic() + 2 * SHORT.total_seconds()
    while folder.read()["write_count"] == before and time.monotonic() < ends_at:
        time.sleep(0.02)
    maintained = bool(folder.read()["write_count"] > before)
    release()
    assert folder.writer() == ""
    return maintained


@BOTH
def test_switched_for_the_process(lease: Any, maintain: Any, folder: Folder) -> None:
    """`MAINTAIN_LEASES.set_global`, which is what `no_maintain` calls."""
    assert maintain.MAINTAIN_LEASES() is True
    assert is_maintained(lease, folder)
    maintain.MAINTAIN_LEASES.set_global(False)
    assert maintain.MAINTAIN_LEASES() is False
    assert not is_maintained(lease, folder)
    maintain.MAINTAIN_LEASES.set_global(True)
    assert is_maintained(lease, folder)
    maintain.no_maintain()
    assert maintain.MAINTAIN_LEASES() is False


@BOTH
def test_switched_for_a_thread(lease: Any, maintain: Any, folder: Folder) -> None:
    """`MAINTAIN_LEASES.set_local`, within a `with`; other threads do not notice."""
    seen: list[bool] = []
    with maintain.MAINTAIN_LEASES.set_local(False):
        assert not is_maintained(lease, folder)
        other = threading.Thread(target=lambda: seen.append(maintain.MAINTAIN_LEASES()))
        other.start()
        other.join()
    assert seen == [True]
    assert maintain.MAINTAIN_LEASES() is True


def test_mops_own_setting_counts(folder: Folder) -> None:
    """A program that switches it where mops has it need not switch it twice."""
    their_maintain.MAINTAIN_LEASES.set_global(False)
    assert not is_maintained(ours, folder)
    with their_maintain.MAINTAIN_LEASES.set_local(True):
        assert ours.MAINTAIN_LEASES() is True
    ours.MAINTAIN_LEASES.set_global(True)
    assert ours.MAINTAIN_LEASES() is True


ASK = {
    "theirs": "from thds.mops.pure.core.lease.maintain import MAINTAIN_LEASES",
    "ours": "from holdfast.dropin.mops_lock.maintain import MAINTAIN_LEASES",
}


@pytest.mark.parametrize("whose", ASK)
@pytest.mark.parametrize(
    ("value", "is_on"),
    [(None, True), ("", True), ("true", True), ("0", False), ("False", False), ("off", False)],
)
def test_the_environment(whose: str, value: str | None, is_on: bool) -> None:
    """What counts when a process starts."""
    program = f"{ASK[whose]}; import sys; sys.exit(7 if MAINTAIN_LEASES() else 8)"
    given = {} if value is None else {"THDS_MOPS_PURE_LOCAL_MAINTAIN_LEASES": value}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **given}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == (7 if is_on else 8), done.stderr.decode()


def test_it_stays_maintained_when_switched_off_later(folder: Folder) -> None:
    """The setting is asked when maintenance begins, and not again."""
    release = ours.maintain_to_release(ours.acquire(folder.uri, expire=SHORT))
    ours.no_maintain()
    before = folder.read()["write_count"]
    until(lambda: folder.read()["write_count"] > before + 1)
    release()
