"""The cache that both refreshes write: one row per filter, with the fence of its writer.

The lock keeps writers apart. The fence is for the one who was late: a process that slept
through the loss of its lease and wakes up with an old result in its hands.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

SCHEMA = "CREATE TABLE IF NOT EXISTS audiences (filter_id INTEGER PRIMARY KEY, people, fence)"
WRITE = """
    INSERT INTO audiences VALUES (?, ?, ?)
    ON CONFLICT (filter_id) DO UPDATE SET people = excluded.people, fence = excluded.fence
    WHERE excluded.fence >= fence
"""


def write(filter_id: int, people: str, fence: int) -> bool:
    """Store a result; False if a later holder of the lock has written already."""
    with closing(sqlite3.connect(os.environ["CACHE_FILE"])) as connection, connection:
        connection.execute(SCHEMA)
        return connection.execute(WRITE, (filter_id, people, fence)).rowcount == 1


def read() -> list[tuple[int, str]]:
    """Everything in it."""
    with closing(sqlite3.connect(os.environ["CACHE_FILE"])) as connection:
        connection.execute(SCHEMA)
        return list(connection.execute("SELECT filter_id, people FROM audiences ORDER BY 1"))
