"""The cache that both refreshes write: one row per filter, behind a gate.

The lock keeps writers apart. The gate is for the one who was late: a process that slept
through the loss of its lease and wakes up with an old result in its hands.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import holdfast
from holdfast import fencing

SCHEMA = "CREATE TABLE IF NOT EXISTS audiences (filter_id INTEGER PRIMARY KEY, people)"
WRITE = """
    INSERT INTO audiences VALUES (?, ?)
    ON CONFLICT (filter_id) DO UPDATE SET people = excluded.people
"""


def write(filter_id: int, people: str, lease: holdfast.Lease) -> None:
    """Store a result. `StaleFence` if a later holder of the lock has written already, `LeaseLost`
    if it is known before that the lease is gone."""
    with closing(_open()) as connection, connection:
        fencing.sql.admit(connection, lease)
        connection.execute(WRITE, (filter_id, people))


def _open() -> sqlite3.Connection:
    connection = sqlite3.connect(os.environ["CACHE_FILE"], timeout=30)
    connection.execute(SCHEMA)
    fencing.sql.setup(connection)
    return connection


def read() -> list[tuple[int, str]]:
    """Everything in it."""
    with closing(_open()) as connection:
        return list(connection.execute("SELECT filter_id, people FROM audiences ORDER BY 1"))
