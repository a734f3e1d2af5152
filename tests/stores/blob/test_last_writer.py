"""A store that does not compare: what last-writer mode promises all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.cli.doctor import NOT_COMPARED, Examination
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.stores.base import Store
from holdfast.stores.blob.names import name_of
from holdfast.stores.registry import open_store
from holdfast.testing.conformance import CASES, FACES, Face, Target, run_case
from tests.conformance.blob_targets import gcs_url, labelled
from tests.engines.gcs import CarelessGCS
from tests.engines.shared import shared

# Who writes at the same instant may both succeed: that is what it does not promise. A batch
# is one wait after the other, and a ttl must be longer than the waits.
NOT_PROMISED = {"one_creates", "no_swap_is_lost"}
# Each of these sees another side of the protocol; the others only more of the rules.
PROMISED = (
    "missing_record_is_empty", "record_comes_back_as_written", "swap_needs_the_version",
    "swap_on_a_missing_record_conflicts", "delete_needs_the_version", "versions_never_repeat",
    "keys_are_exact", "clock_is_as_the_facts_say", "scan_is_paged_in_order",
    "scanned_versions_can_be_swapped", "wait_ends_by_itself", "wait_sees_an_earlier_change",
    "wait_sees_a_change_by_another", "corrupt_record_is_a_fault", "corrupt_record_is_left_alone",
    "acquire_bears_any_single_fault", "release_bears_any_single_fault",
    "fence_grows_when_the_record_was_dropped",
)  # fmt: skip


class LastWriterTarget(Target):
    """A directory as a network file system without locks would show it."""

    ttl = 3.0

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks"
        self._path.mkdir()

    def open(self) -> Store:
        return open_store(f"file://{self._path}?protocol=last-writer")

    def overwrite(self, key: str, text: str) -> None:
        (self._path / name_of(key)).write_bytes(labelled(key, text))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", PROMISED)
def test_case(name: str, face: Face, tmp_path: Path) -> None:
    """A conformance case that needs no comparison holds."""
    assert name in CASES
    assert name not in NOT_PROMISED
    run_case(name, LastWriterTarget(tmp_path), face)


def test_it_says_what_it_is(tmp_path: Path) -> None:
    """The facts and caveats say best effort."""
    facts = LastWriterTarget(tmp_path).open().facts
    assert not facts.linearizable
    assert "two parties" in facts.caveats[0]


def test_doctor_finds_a_store_that_does_not_compare() -> None:
    """A server that ignores conditions without a word is found, and the way out is named."""
    server = shared(CarelessGCS)
    store = open_store(gcs_url(server))
    first = store.swap("k", None, Record(1))
    assert isinstance(first, Swapped)
    assert isinstance(store.swap("k", None, Record(2)), Swapped), "it compares"
    checks = {check.name: check for check in Examination(store, 1).checks()}
    assert not checks["compare"].ok
    assert "protocol=last-writer" in checks["compare"].detail
    assert "protocol=last-writer" in NOT_COMPARED
    best = open_store(gcs_url(server) + "&protocol=last-writer")
    checks = {check.name: check for check in Examination(best, 1).checks()}
    assert checks["compare"].ok
    assert checks["compare"].detail == "best effort"
    with holdfast.connect(best) as locks, locks.acquire("k", ttl=60):
        assert holdfast.connect(gcs_url(server)).try_acquire("other") is not None
        assert locks.try_acquire("k") is None
