"""The pipeline between two databases is run, and a stale run of it is refused."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.pipeline_between_databases import TARGET, copy, prepare
from holdfast import KeyMismatch, StaleFence
from holdfast.fencing import Fence

ROOT = Path(__file__).parents[2]
MONTHS = [("2026-10", 12), ("2026-11", 38)]


def test_it_writes_real_tables(tmp_path: Path) -> None:
    """As its first lines say, with nothing to install; a second time gives the same."""
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "examples/pipeline_between_databases.py", str(tmp_path)],
            env={**os.environ, "HOLDFAST_URL": f"sqlite://{tmp_path}/locks.db"},
            cwd=ROOT, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert ran.stdout.startswith(f"wrote 2 months to {TARGET} with fence "), ran.stderr
    with closing(sqlite3.connect(tmp_path / "reports.db")) as reports:
        assert reports.execute("SELECT * FROM monthly").fetchall() == MONTHS


def test_a_stale_run_changes_nothing(tmp_path: Path) -> None:
    """Its delete is rolled back with the rest; a lease on the wrong database is told so."""
    with (
        closing(sqlite3.connect(tmp_path / "w.db")) as warehouse,
        closing(sqlite3.connect(tmp_path / "r.db")) as reports,
    ):
        prepare(warehouse, reports)
        assert copy(warehouse, reports, Fence(TARGET, 9)) == 2
        with pytest.raises(StaleFence):
            copy(warehouse, reports, Fence(TARGET, 8))
        with pytest.raises(KeyMismatch):
            copy(warehouse, reports, Fence("db://warehouse", 10))
        assert reports.execute("SELECT * FROM monthly").fetchall() == MONTHS
