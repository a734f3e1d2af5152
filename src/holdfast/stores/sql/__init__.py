"""Locks in a table of PostgreSQL, MySQL or MariaDB, through SQLAlchemy."""

from holdfast.stores.sql.store import SQLStore

__all__ = ["SQLStore"]
