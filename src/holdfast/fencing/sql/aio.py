"""The same, awaited: `await holdfast.fencing.aio.sql.admit(tx, lease)`."""

from holdfast.fencing.sql.admitting_async import admit, setup
from holdfast.fencing.sql.dialects import TABLE, ddl
from holdfast.fencing.sql.own_column import UnlessStale, unless_stale

__all__ = ["TABLE", "UnlessStale", "admit", "ddl", "setup", "unless_stale"]
