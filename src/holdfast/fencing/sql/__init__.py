"""Writes to PostgreSQL, MySQL, MariaDB and SQLite that a stale holder cannot make.

    from holdfast import fencing

    with engine.begin() as tx:
        fencing.sql.admit(tx, lease)  # StaleFence, and the transaction rolls back
        tx.execute(...)               # any statements

`setup(connection)` makes the table once, `ddl(dialect)` shows it. It does not matter where the lock
itself is kept.
"""

from holdfast.fencing.sql.admitting import admit, setup
from holdfast.fencing.sql.dialects import TABLE, ddl
from holdfast.fencing.sql.own_column import UnlessStale, unless_stale

__all__ = ["TABLE", "UnlessStale", "admit", "ddl", "setup", "unless_stale"]
