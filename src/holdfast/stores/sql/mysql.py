"""What is asked of MySQL and MariaDB, in SQL that both understand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.contract import Conflict, Entry, Interval, Swapped, Version, exactly
from holdfast.core.effects import Swap
from holdfast.core.records import Record, encode
from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.stores.base import Outcome
from holdfast.stores.sql.errors import MYSQL, AlreadyThere
from holdfast.stores.sql.protocol import (
    Answer,
    Dialect,
    Outcomes,
    Queries,
    Query,
    Table,
    Update,
    facts_of,
    rounded,
)
from holdfast.stores.sql.setup import TableProbe

NO_VERSION = -1


class MySQLDialect(Dialect):
    """MySQL 8.0.17 and later, MariaDB 10.3 and later."""

    facts = facts_of(
        "mysql",
        "replica",
        "Waiters of other machines poll: a lock changes hands within a second at most.",
    )
    diagnosis = MYSQL
    sql_file = Path(__file__).with_name("mysql.sql")
    returning = False
    quote_mark = "`"

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._now = Query(self.sql("now"))
        self._updates: dict[int, str] = {}  # by how many rows they write

    def fragments(self) -> dict[str, str]:
        """Returns where the table is looked for."""
        return {"schema": f"'{self.table.schema}'" if self.table.schema else "DATABASE()"}

    def on_server(self, probe: TableProbe) -> dict[str, str]:
        """The two name their exact collations differently."""
        mariadb = "mariadb" in probe.server.lower()
        return {"collation": "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"}

    def user_name(self, probe: TableProbe) -> str:
        name, _, host = probe.who.rpartition("@")
        return f"'{name}'@'{host}'"

    def text_of(self, record: Record) -> str:
        """In hexadecimal digits: PyMySQL takes long to escape JSON, which has many quotes."""
        return encode(record).hex()

    def swap_queries(self, swap: Swap) -> Queries[Outcome]:
        """One statement; a second one shows what is there if it did not fit."""
        try:
            written = self.written(swap.version, (yield self.swap_query(swap)))
        except AlreadyThere:
            written = None
        if written is None:
            return Conflict((yield from self.load_queries(swap.key)))
        if swap.record is None:
            return Swapped(None, (yield from self._now_queries()))
        return written

    def written(self, version: Version, answer: Answer) -> Swapped | None:
        return _written(version, answer.last_id) if answer.count == 1 else None

    def update_many_queries(self, updates: Sequence[Update]) -> Queries[Outcomes]:
        """One statement; a second one shows which did not fit, if not all did."""
        answer = yield from self._update_many(updates)
        clock = answer.last_id
        if answer.count == len(updates):
            return [_written(update.version, clock) for update in updates]
        try:
            there = yield from self.load_many_queries([update.key for update in updates])
        except HoldfastError as trouble:
            raise _written_but(trouble) from trouble.__cause__
        if answer.count == 0:
            return [Conflict(there[update.key]) for update in updates]
        return [_became_of(update, there[update.key], clock) for update in updates]

    def _update_many(self, updates: Sequence[Update]) -> Query:
        size = rounded(len(updates))
        sql = self._updates.get(size)
        if sql is None:
            rows = "\nUNION ALL\n".join(self.sql("row", n=str(n)) for n in range(size))
            sql = self._updates[size] = self.sql("update_many", rows=rows)
        values: dict[str, Any] = {}
        for n in range(size):
            update = updates[min(n, len(updates) - 1)]
            # No row has the version of those that only fill up.
            version = update.version if n < len(updates) else NO_VERSION
            row = {"key": update.key, "version": version, **update.columns}
            values |= {f"{name}{n}": value for name, value in row.items()}
        return Query(sql, values, writing=True, shows=False)

    def _now_queries(self) -> Queries[Interval]:
        """The clock, after a write that was done: a failure here does not undo it."""
        try:
            answer = yield from self._now
        except HoldfastError as trouble:
            raise _written_but(trouble) from trouble.__cause__
        return exactly(answer.rows[0][0])


def _written(version: Version, clock: int) -> Swapped:
    """A version is at least the clock, and larger than the one before."""
    return Swapped(clock if version is None else max(version + 1, clock), exactly(clock))


def _written_but(trouble: HoldfastError) -> OutcomeUnknown:
    return OutcomeUnknown(f"It was written, but then: {trouble}")


def _became_of(update: Update, there: Entry, clock: int) -> Outcome | Exception:
    """Whether one of several updates was done, from what is there a moment later."""
    done = _written(update.version, clock)
    if there.version is not None and there.version < done.version:
        return Conflict(there)
    if there.version == done.version and there.record == update.record:
        return done
    return OutcomeUnknown(
        f"Somebody else wrote {update.key!r} right after this write, or just before."
    )
