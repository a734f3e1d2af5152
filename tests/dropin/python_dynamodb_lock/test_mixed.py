"""Workers with the original and workers with ours on one table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.dropin.python_dynamodb_lock import counter
from tests.dropin.python_dynamodb_lock.lab import BRIEF, PATIENT, Lab, LastHeard, Whose, seconds
from tests.dropin.workers import count_together
from tests.helpers import until

PROCESSES, TIMES = 8, 50


@pytest.mark.timeout(300)
def test_old_and_new_workers_count_together(local: Lab, tmp_path: Path) -> None:
    """Eight processes, half of them with the original: no increment is lost."""
    workers = [
        (local.endpoint, local.table, ("ours", "theirs")[number % 2], TIMES)
        for number in range(PROCESSES)
    ]
    counted = count_together(counter.__name__, tmp_path / "number", workers)
    assert counted == PROCESSES * TIMES
    assert local.item() is None


@pytest.mark.parametrize(("first", "second"), [("ours", "theirs"), ("theirs", "ours")])
def test_each_respects_the_others_lock(local: Lab, first: Whose, second: Whose) -> None:
    """While it beats; and takes it over when it does not."""
    with (
        closing(Lab(local.endpoint, first, local.table)) as one,
        closing(Lab(local.endpoint, second, local.table)) as two,
    ):
        holder, rival = one.client(lease_duration=seconds(2)), two.client()
        told = LastHeard()
        lock = holder.acquire_lock("k", app_callback=told)
        version = local.version()
        with pytest.raises(two.Error):
            rival.acquire_lock("k", **BRIEF)
        until(lambda: local.version() != version)
        holder.close()
        taken = rival.acquire_lock("k", **PATIENT)
        assert local.version() == taken.record_version_number
        with pytest.raises(one.Error) as caught:
            lock.release(best_effort=False)
        assert caught.value.code == one.Error.LOCK_STOLEN
        taken.release(best_effort=False)


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_theft_is_told_whoever_stole(local: Lab, whose: Whose) -> None:
    """A lock of one, thrown out by hand, taken by the other."""
    with (
        closing(Lab(local.endpoint, whose, local.table)) as one,
        closing(Lab(local.endpoint, "theirs" if whose == "ours" else "ours", local.table)) as two,
    ):
        told = LastHeard()
        one.client().acquire_lock("k", app_callback=told)
        local.delete()
        until(lambda: told.codes == ["LOCK_STOLEN"])
        two.client().acquire_lock("k", **BRIEF).release(best_effort=False)
