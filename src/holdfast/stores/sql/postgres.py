"""What is asked of PostgreSQL: a swap and its wake-up are one round trip."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Conflict, Facts, Swapped, Version, exactly
from holdfast.core.records import Record
from holdfast.errors import HoldfastError
from holdfast.stores.base import Outcome
from holdfast.stores.sql.codec import array_of, columns_of, notification_text
from holdfast.stores.sql.errors import POSTGRES
from holdfast.stores.sql.protocol import BATCH, Dialect, Queries, Query, Table, Update
from holdfast.stores.sql.setup import TableProbe

SHOWN_COLUMNS = ("mode", "owners", "fence", "expires_at", "record")


class PostgreSQLDialect(Dialect):
    """PostgreSQL 11 and later."""

    facts = Facts(
        name="postgresql",
        linearizable=True,
        clock="store",
        reach="network",
        wakeup="push",
        durable=True,
        native_async=True,
        batch=BATCH,
        caveats=(
            "After a failover to an asynchronous standby the last writes may be missing: two "
            "may then believe to hold a lock for up to a ttl, and only the fence tells.",
            "The server's clock decides expiry: let it be slewed, never set back or forth.",
        ),
    )
    diagnosis = POSTGRES
    sql_file = Path(__file__).with_name("postgres.sql")
    returning = True
    quote_mark = '"'
    channel = ""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._update_many = self.sql("update_many")

    def fragments(self) -> dict[str, str]:
        """Returns the wake-up that goes with a write."""
        return {name: self._raw[name] for name in ("notify", "notify_deleted")}

    def found(self, probe: TableProbe) -> None:
        """Name the channel by where the table really is, however it was named here."""
        where = f"{probe.schema}.{probe.name}"
        self.channel = f"holdfast_{hashlib.sha256(where.encode()).hexdigest()[:16]}"

    def look_values(self) -> Mapping[str, Any]:
        return {"name": self._fill["table"]}

    def create_statement(self, probe: TableProbe) -> str:
        """The table and its comment come into being together."""
        return self.sql("create_at_once", create=self.sql("create"))

    def swap_queries(
        self, key: str, version: Version, record: Record | None, wake: Wake
    ) -> Queries[Outcome]:
        """One statement; a second one shows what is there if it did not fit."""
        answer = yield from self._swap(key, version, record, wake)
        if not answer.rows:
            return Conflict((yield from self.load_queries(key)))
        written, now, _ = answer.rows[0]
        return Swapped(None if record is None else written, exactly(now))

    def update_many_queries(
        self, updates: Sequence[Update]
    ) -> Queries[Sequence[Outcome | Exception]]:
        """One statement; a second one shows what is there of those that did not fit."""
        values = {name: array_of([u.columns[name] for u in updates]) for name in SHOWN_COLUMNS}
        values["key"] = array_of([update.key for update in updates])
        values["version"] = array_of([update.version for update in updates])
        answer = yield from Query(self._update_many, values, writing=True)
        done = {key: Swapped(version, exactly(now)) for key, version, now in answer.rows}
        missed = [update.key for update in updates if update.key not in done]
        outcomes: dict[str, Outcome | Exception] = {**done}
        if missed:
            try:
                there = yield from self.load_many_queries(missed)
                outcomes |= {key: Conflict(entry) for key, entry in there.items()}
            except HoldfastError as trouble:  # but what was done is done
                outcomes |= dict.fromkeys(missed, trouble)
        return [outcomes[update.key] for update in updates]

    def _swap(self, key: str, version: Version, record: Record | None, wake: Wake) -> Query:
        values: dict[str, Any] = {"key": key, "channel": self.channel}
        if record is None:
            turn = int(wake != NOBODY)
            return self.writing(
                "delete", **values, version=version, turn=turn, news=notification_text(key, wake)
            )
        values |= columns_of(record, wake)
        values["news"] = notification_text(key, wake)
        if version is None:
            return self.writing("insert", **values)
        return self.writing("update", **values, version=version)

    def notify_queries(self, payload: str) -> Queries[None]:
        """Send this to all who listen."""
        yield from Query(
            self.sql("notify_all"), {"channel": self.channel, "payload": payload}, writing=True
        )
