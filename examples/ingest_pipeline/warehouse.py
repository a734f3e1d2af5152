"""The warehouse: one row per dataset and month, behind a gate.

The lock keeps writers apart. The gate is for the one who was late: a run that slept through the
loss of its lease and wakes up with an old result in its hands. It is refused in the transaction
in which it would have written. Who writes without a fence is believed, as ever.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from examples.ingest_pipeline.extract import Row
from holdfast import StaleFence, fencing
from holdfast.fencing import Fence

logger = logging.getLogger(__name__)

Month = tuple[int, int]

SCHEMA = """
    CREATE TABLE IF NOT EXISTS monthly (
        dataset TEXT, year INTEGER, month INTEGER, days INTEGER, mean REAL, file TEXT,
        fence INTEGER,
        PRIMARY KEY (dataset, year, month)
    )
"""
LOAD = """
    INSERT INTO monthly VALUES (:dataset, :year, :month, :days, :mean, :file, :fence)
    ON CONFLICT DO UPDATE SET
        days = excluded.days, mean = excluded.mean, file = excluded.file, fence = excluded.fence
"""
READ = "SELECT dataset, year, month, days, mean, fence FROM monthly ORDER BY 1, 2, 3"
FILE = "SELECT file FROM monthly WHERE (dataset, year, month) = (?, ?, ?)"


def current_file(folder: Path, dataset_id: str, month: Month) -> str | None:
    """The projection of a month, if there is one."""
    with closing(_open(folder)) as connection:
        found = connection.execute(FILE, (dataset_id, *month)).fetchone()
    return None if found is None else str(found[0])


def load(
    folder: Path, dataset_id: str, month: Month, file: str, rows: list[Row], fence: Fence | None
) -> bool:
    """Store a month; False if a later holder of its lock has stored it already."""
    row = {
        "dataset": dataset_id, "year": month[0], "month": month[1], "days": len(rows),
        "mean": sum(row.value for row in rows) / len(rows), "file": file,
        "fence": fence.fence if fence else None,  # for people: it is the gate that compares
    }  # fmt: skip
    try:
        with closing(_open(folder)) as connection, connection:
            if fence is not None:
                fencing.sql.admit(connection, fence)
            connection.execute(LOAD, row)
    except StaleFence as stale:
        logger.warning("Refused: %s %d-%02d. %s", dataset_id, *month, stale)
        return False
    return True


def read(folder: Path) -> list[tuple[Any, ...]]:
    """Everything in it."""
    with closing(_open(folder)) as connection:
        return list(connection.execute(READ))


def _open(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "warehouse.db", timeout=30)
    connection.execute(SCHEMA)
    fencing.sql.setup(connection)
    return connection
