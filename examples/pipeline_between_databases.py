"""A pipeline that reads one database and writes another, under locks on both.

    HOLDFAST_URL=postgresql://user@host/db python examples/pipeline_between_databases.py [FOLDER]

`acquire_all` gets both locks or none, and everybody gets them in the same order, so that a
pipeline from A to B and one from B to A never wait for each other in a circle. Reading is
shared: many pipelines may read the warehouse at once, but nobody while it is being written.

The report is written behind a gate. A run that was stopped for longer than its ttl and goes on
later is refused with `StaleFence`, and its whole transaction is rolled back. Both databases are
SQLite files here, to be run without anything; `fencing.sql.admit` takes other connections as well.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import holdfast
from holdfast import fencing
from holdfast.fencing.gate import Fenced

SOURCE, TARGET = "db://warehouse", "db://reports"
ORDERS = [("2026-10-30", 12), ("2026-11-02", 30), ("2026-11-17", 8)]


def prepare(warehouse: sqlite3.Connection, reports: sqlite3.Connection) -> None:
    """What an administrator does once: tables on both sides, and the gate beside the reports."""
    with warehouse:
        warehouse.execute("CREATE TABLE IF NOT EXISTS orders (day TEXT PRIMARY KEY, total INT)")
        warehouse.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?)", ORDERS)
    with reports:
        reports.execute("CREATE TABLE IF NOT EXISTS monthly (month TEXT, total INT)")
        fencing.sql.setup(reports)


def copy(warehouse: sqlite3.Connection, reports: sqlite3.Connection, lease: Fenced) -> int:
    """The work. Returns how many months were written."""
    months = warehouse.execute("SELECT substr(day, 1, 7), sum(total) FROM orders GROUP BY 1")
    with reports:  # one transaction: the gate, the delete and the load
        fencing.sql.admit(reports, lease, key=TARGET)
        reports.execute("DELETE FROM monthly")
        return reports.executemany("INSERT INTO monthly VALUES (?, ?)", months).rowcount


def main(folder: Path) -> None:
    """Run the pipeline once."""
    wants = [holdfast.Want(SOURCE, mode="shared"), holdfast.Want(TARGET)]
    with (
        closing(sqlite3.connect(folder / "warehouse.db", timeout=30)) as warehouse,
        closing(sqlite3.connect(folder / "reports.db", timeout=30)) as reports,
        holdfast.connect(owner="nightly reports") as locks,
    ):
        prepare(warehouse, reports)
        with locks.acquire_all(wants, ttl=60, timeout=600) as leases:
            written = copy(warehouse, reports, leases[TARGET])
            print(f"wrote {written} months to {TARGET} with fence {leases[TARGET].fence}")
        for info in locks.list("db://"):
            print(f"still held: {info.key}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
