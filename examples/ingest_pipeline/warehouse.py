"""The warehouse: one row per dataset and month, with the fence of its writer.

The lock keeps writers apart. The fence is for the one who was late: a run that slept
through the loss of its lease and wakes up with an old result in its hands. Who writes
without a fence is believed, as ever.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from examples.ingest_pipeline.extract import Row

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
        days = excluded.days, mean = excluded.mean, file = excluded.file,
        fence = coalesce(excluded.fence, fence)
    WHERE excluded.fence IS NULL OR fence IS NULL OR excluded.fence >= fence
"""
READ = "SELECT dataset, year, month, days, mean, fence FROM monthly ORDER BY 1, 2, 3"
FILE = "SELECT file FROM monthly WHERE (dataset, year, month) = (?, ?, ?)"


def current_file(folder: Path, dataset_id: str, month: Month) -> str | None:
    """The projection of a month, if there is one."""
    with closing(_open(folder)) as connection:
        found = connection.execute(FILE, (dataset_id, *month)).fetchone()
    return None if found is None else str(found[0])


def load(
    folder: Path, dataset_id: str, month: Month, file: str, rows: list[Row], fence: int | None
) -> bool:
    """Store a month; False if a later holder of its lock has stored it already."""
    row = {
        "dataset": dataset_id, "year": month[0], "month": month[1], "days": len(rows),
        "mean": sum(row.value for row in rows) / len(rows), "file": file, "fence": fence,
    }  # fmt: skip
    with closing(_open(folder)) as connection, connection:
        stored = connection.execute(LOAD, row).rowcount == 1
    if not stored:
        logger.warning("Refused: %s %d-%02d has a later fence than %s", dataset_id, *month, fence)
    return stored


def read(folder: Path) -> list[tuple[Any, ...]]:
    """Everything in it."""
    with closing(_open(folder)) as connection:
        return list(connection.execute(READ))


def _open(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "warehouse.db", timeout=30)
    connection.execute(SCHEMA)
    return connection
