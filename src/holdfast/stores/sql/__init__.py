"""Locks in a table of PostgreSQL, MySQL or MariaDB, through SQLAlchemy."""

from typing import Any

from holdfast.stores.sql.store import SQLStore

__all__ = ["SQLStore", "asyncio_store"]


def asyncio_store(store: SQLStore) -> Any:
    """Returns the asyncio twin of a store. asyncio is imported only when somebody uses it."""
    from holdfast.stores.sql.store_async import AsyncSQLStore

    return AsyncSQLStore(store)
