"""What a client of the original does to the database, statement by statement."""

from __future__ import annotations

from types import TracebackType

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool


class OldClient:
    """Looks first and inserts then, like the original. On MySQL it locks the tables."""

    def __init__(self, url: str, name: str = "old") -> None:
        self._mysql = url.startswith("mysql")
        self._connection = create_engine(url, poolclass=NullPool).connect()
        self._name = name

    def __enter__(self) -> OldClient:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def look(self, uri: str, lock_type: str) -> int:
        """How many locks are in the way. On MySQL the tables are locked from here on."""
        self._client = self._id("client", "name", self._name)
        self._resource = self._id("resource", "uri", uri)
        if self._mysql:
            self._run("LOCK TABLE client WRITE, resource WRITE, resource_lock WRITE")
        sql = "SELECT count(*) FROM resource_lock WHERE resource_id = :resource"
        if lock_type == "read":
            sql += " AND lock_type = 'write'"
        return int(self._connection.scalar(text(sql), {"resource": self._resource}) or 0)

    def insert(self, lock_type: str) -> None:
        """Take the lock. (The original leaves the tables locked here.)"""
        self._run(
            "INSERT INTO resource_lock (lock_type, created, client_id, resource_id) "
            "VALUES (:type, CURRENT_TIMESTAMP, :client, :resource)",
            type=lock_type, client=self._client, resource=self._resource,
        )  # fmt: skip
        self._connection.commit()

    def lock(self, uri: str, lock_type: str) -> bool:
        """The whole of it, with the tables unlocked at the end."""
        free = self.look(uri, lock_type) == 0
        if free:
            self.insert(lock_type)
        self.let_go()
        return free

    def unlock(self) -> None:
        """Delete our locks."""
        self._run("DELETE FROM resource_lock WHERE client_id = :client", client=self._client)
        self._connection.commit()
        self.let_go()

    def let_go(self) -> None:
        """End the transaction and unlock the tables."""
        self._connection.rollback()
        if self._mysql:
            self._run("UNLOCK TABLES")

    def _id(self, table: str, column: str, value: str) -> int:
        sql = f"SELECT {table}_id FROM {table} WHERE {column} = :value"
        found = self._connection.scalar(text(sql), {"value": value})
        if found is None:
            self._run(f"INSERT INTO {table} ({column}) VALUES (:value)", value=value)
            self._connection.commit()
            return self._id(table, column, value)
        return int(found)

    def _run(self, sql: str, **values: object) -> None:
        self._connection.execute(text(sql), values)
