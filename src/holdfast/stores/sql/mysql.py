"""MySQL and MariaDB, in what both speak."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.sql.compiler import IdentifierPreparer

from holdfast.core.commands import Wake
from holdfast.core.contract import Conflict, Facts, Interval, Swapped, Version, exactly
from holdfast.core.records import Record
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.stores.base import Outcome
from holdfast.stores.sql.dialect import Dialect, Queries, Query, Sight, Table, columns_of
from holdfast.stores.sql.errors import MYSQL, AlreadyThere


class MySQLDialect(Dialect):
    """MySQL 8.0.17 and later, MariaDB 10.3 and later."""

    facts = Facts(
        name="mysql",
        linearizable=True,
        clock="store",
        reach="network",
        wakeup="poll",
        durable=True,
        native_async=True,
        caveats=(
            "After a failover to an asynchronous replica the last writes may be missing: two "
            "may then believe to hold a lock for up to a ttl, and only the fence tells.",
            "The server's clock decides expiry: let it be slewed, never set back or forth.",
            "Waiters look for themselves: a lock changes hands within a second at most.",
        ),
    )
    diagnosis = MYSQL
    sql_file = Path(__file__).with_name("mysql.sql")
    returning = False

    def __init__(self, table: Table, preparer: IdentifierPreparer) -> None:
        super().__init__(table, preparer)
        self._now = Query(self.sql("now"))

    def fragments(self) -> dict[str, str]:
        """Where the table is looked for."""
        return {"schema": f"'{self.table.schema}'" if self.table.schema else "DATABASE()"}

    def on_server(self, sight: Sight) -> dict[str, str]:
        """The two name their exact collations differently."""
        mariadb = "mariadb" in sight.server.lower()
        return {"collation": "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"}

    def user_name(self, sight: Sight) -> str:
        name, _, host = sight.who.rpartition("@")
        return f"'{name}'@'{host}'"

    def swap_queries(
        self, key: str, version: Version, record: Record | None, wake: Wake
    ) -> Queries[Outcome]:
        """One statement; a second one shows what is there if it did not fit."""
        query = self._swap(key, version, record, wake)
        try:
            answer = yield from query
        except AlreadyThere:
            return Conflict((yield from self.load_queries(key)))
        if answer.count != 1:
            return Conflict((yield from self.load_queries(key)))
        if record is None:
            return Swapped(None, (yield from self._now_queries()))
        written = answer.last_id
        if version is not None and written == version + 1:
            # The clock did not go forward, so the version is not its reading.
            return Swapped(written, (yield from self._now_queries()))
        return Swapped(written, exactly(written))

    def _swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Query:
        if record is None:
            return self.writing("delete", key=key, version=version)
        values = {"key": key, **columns_of(record, wake)}
        if version is None:
            return self.writing("insert", **values)
        return self.writing("update", **values, version=version)

    def _now_queries(self) -> Queries[Interval]:
        """The clock, after a write that was done: a failure here does not undo it."""
        try:
            answer = yield from self._now
        except Unavailable as trouble:
            raise OutcomeUnknown(f"It was written, but then: {trouble}") from trouble.__cause__
        return exactly(answer.rows[0][0])
