"""What is asked of PostgreSQL: a swap and its wake-up are one round trip."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.commands import ANYONE, NOBODY
from holdfast.core.contract import Conflict, Swapped, Version, exactly
from holdfast.core.effects import Swap
from holdfast.errors import HoldfastError
from holdfast.stores.base import Outcome
from holdfast.stores.sql.codec import array_of, notification_text
from holdfast.stores.sql.errors import POSTGRES
from holdfast.stores.sql.protocol import (
    Answer,
    Dialect,
    Outcomes,
    Queries,
    Query,
    Table,
    Update,
    facts_of,
)
from holdfast.stores.sql.setup import TableProbe
from holdfast.stores.waiting.local_wakeups import waits_here

SHOWN_COLUMNS = ("mode", "owners", "fence", "expires_at", "record")


class PostgreSQLDialect(Dialect):
    """PostgreSQL 11 and later."""

    facts = facts_of("postgresql", "standby", push=True)
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

    def swap_queries(self, swap: Swap) -> Queries[Outcome]:
        """One statement; a second one shows what is there if it did not fit."""
        written = self.written(swap.version, (yield self.swap_query(swap)))
        if written is None:
            return Conflict((yield from self.load_queries(swap.key)))
        return written if swap.record else Swapped(None, written.now)

    def written(self, version: Version, answer: Answer) -> Swapped | None:
        return Swapped(answer.rows[0][0], exactly(answer.rows[0][1])) if answer.rows else None

    def wake_values(self, swap: Swap) -> dict[str, Any]:
        """Returns what the notification says. It wakes every process that listens, so it is left
        out where all whom it concerns wait on this machine: they are woken without the server."""
        here = swap.wake != ANYONE and all(map(waits_here, swap.wake))
        news = "" if here else notification_text(swap.key, swap.wake)
        return {"channel": self.channel, "turn": int(swap.wake != NOBODY), "news": news}

    def update_many_queries(self, updates: Sequence[Update]) -> Queries[Outcomes]:
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

    def notify_queries(self, payload: str) -> Queries[None]:
        """Send this to all who listen."""
        yield from Query(
            self.sql("notify_all"), {"channel": self.channel, "payload": payload}, writing=True
        )
