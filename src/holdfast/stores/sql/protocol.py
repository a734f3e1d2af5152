"""What the SQL stores ask of a database, and what its answers mean. Pure: there is no I/O here.

Every operation is a generator of queries with the suffix `_queries`: it yields a `Query`, gets
its `Answer`, and returns the outcome. `transport` runs it, blocking or on an event loop. What
differs between databases is in `postgres` and `mysql`; the SQL is in the `.sql` files beside them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.core.commands import Wake
from holdfast.core.contract import (
    Amended,
    Change,
    Entry,
    Facts,
    Page,
    Swapped,
    Version,
    exactly,
)
from holdfast.core.effects import Swap
from holdfast.core.records import Record, encode
from holdfast.errors import BadOption
from holdfast.stores.base import Outcome
from holdfast.stores.sql.codec import columns_of, entry_of
from holdfast.stores.sql.errors import Diagnosis, Doing
from holdfast.stores.sql_files import read_queries
from holdfast.stores.waiting.handles import PollResult

if TYPE_CHECKING:
    from holdfast.stores.sql.setup import TableProbe

R = TypeVar("R")

SCHEMA = 1
MARK = "holdfast schema"
HOPEFUL_TRIES = 2
BATCH = 100  # how many renewals go in one statement
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Answer(Struct, frozen=True):
    """What came back: rows, how many were written, and MySQL's LAST_INSERT_ID."""

    rows: Sequence[Any] = ()
    count: int = 0
    last_id: int = 0


class Query(Struct, frozen=True):
    """One statement, a transaction of its own unless it says otherwise; values are named as in
    `:key`."""

    sql: str
    values: dict[str, Any] = {}
    writing: bool = False
    shows: bool = True  # it returns rows
    many: bool = False  # several statements in one trip, which return the rows of all

    @property
    def doing(self) -> Doing:
        """Returns what is under way when the connection breaks."""
        return "writing" if self.writing else "reading"

    def __iter__(self) -> Generator[Query, Any, Answer]:
        answer: Answer = yield self
        return answer


Queries: TypeAlias = Generator[Query, Any, R]
Outcomes: TypeAlias = Sequence[Outcome | Exception]


class Table(Struct, frozen=True):
    """Where the locks are."""

    name: str = "holdfast_locks"
    schema: str | None = None

    def checked(self) -> Table:
        """Returns this; raises if a name could do more in SQL than name something."""
        for what, name in (("table", self.name), ("schema", self.schema or "public")):
            if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
                raise BadOption(
                    f"{what} is a name of at most 63 letters, digits and underscores, not {name!r}."
                )
        return self

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class Update(Struct, frozen=True):
    """A swap that goes with others."""

    key: str
    version: int
    record: Record
    columns: dict[str, Any]


class Dialect(ABC):
    """One kind of database, and the table in it."""

    facts: ClassVar[Facts]
    diagnosis: ClassVar[Diagnosis]
    sql_file: ClassVar[Path]
    returning: ClassVar[bool]  # whether its writes return rows
    quote_mark: ClassVar[str]

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ready = False  # the table was seen to be there
        parts = [table.schema, table.name] if table.schema else [table.name]
        self._raw = read_queries(self.sql_file)
        self._fill = {
            "table": ".".join(map(self.quoted, parts)),
            "clock": self._raw["clock"],
            "mark": f"{MARK} {SCHEMA}",
            **self.fragments(),
        }
        names = ("look", "load", "insert", "update", "delete", "first_page", "next_page")
        self._statements = {name: self.sql(name) for name in names}
        self._hold = self.sql("hold")

    def sql(self, name: str, **more: str) -> str:
        """Returns a statement of the file with the table's name in it."""
        return self._raw[name].format(**self._fill, **more)

    def quoted(self, name: str) -> str:
        """Returns a name for use in SQL."""
        mark = self.quote_mark
        return f"{mark}{name.replace(mark, 2 * mark)}{mark}"

    def fragments(self) -> dict[str, str]:
        """Returns further pieces that the file's statements are made of."""
        return {}

    def reading(self, which: str, /, **values: Any) -> Query:
        """Returns a statement of the file with values."""
        return Query(self._statements[which], values)

    def writing(self, which: str, /, **values: Any) -> Query:
        """Returns one that changes something."""
        return Query(self._statements[which], values, True, self.returning)

    # --- records ----------------------------------------------------------------------------

    def load_queries(self, key: str) -> Queries[Entry]:
        """Returns what is there now."""
        answer: Answer = yield self.reading("load", key=key)
        return entry_of(*answer.rows[0])

    @abstractmethod
    def swap_queries(self, swap: Swap) -> Queries[Outcome]:
        """Write if the version is still this one."""

    def swap_query(self, swap: Swap) -> Query:
        """Returns the statement that writes a record, or deletes it."""
        values = {"key": swap.key, **self.wake_values(swap)}
        if swap.record is None:
            return self.writing("delete", **values, version=swap.version)
        values |= self.columns(swap.record, swap.wake)
        if swap.version is None:
            return self.writing("insert", **values)
        return self.writing("update", **values, version=swap.version)

    def columns(self, record: Record, wake: Wake) -> dict[str, Any]:
        """Returns what is written of a record."""
        return columns_of(record, wake, self.text_of(record))

    def text_of(self, record: Record) -> str:
        """Returns a record as its column takes it."""
        return encode(record).decode()

    def wake_values(self, swap: Swap) -> dict[str, Any]:
        """Returns what a write says besides to those whom it may let in."""
        return {}

    def amend_queries(self, key: str, change: Change) -> Queries[Amended | None]:
        """Look, decide and write if the record is still the same, twice at the most. Returns None
        if that does not help: then it is held still with `amend_held_queries`."""
        entry = yield from self.load_queries(key)
        for _ in range(HOPEFUL_TRIES):
            decision = change(entry)
            if decision.record is None:
                return Amended(decision, entry)
            swap = Swap(key, entry.version, decision.record, decision.wake)
            outcome = yield from self.swap_queries(swap)
            if isinstance(outcome, Swapped):
                return Amended(decision, Entry(decision.record, outcome.version, entry.now))
            entry = outcome.entry
        return None

    def amend_held_queries(self, key: str, change: Change) -> Queries[Amended]:
        """Amend in one transaction, on one connection: others who want to write the record wait
        meanwhile. A record that is not there yet cannot be held; if another one creates it at the
        same time, the two meet in `insert`, and one looks again."""
        while True:
            (now,), *found = (yield from Query(self._hold, {"key": key}, many=True)).rows
            entry = entry_of(now, *(found[0] if found else (None, None)))
            decision = change(entry)
            if decision.record is None:
                yield from Query("ROLLBACK", shows=False)
                return Amended(decision, entry)
            query = self.swap_query(Swap(key, entry.version, decision.record, decision.wake))
            query = Query(f"{query.sql};\nCOMMIT", query.values, writing=True, many=True)
            written = self.written(entry.version, (yield from query))
            if written is not None:
                return Amended(decision, Entry(decision.record, written.version, entry.now))

    @abstractmethod
    def written(self, version: Version, answer: Answer) -> Swapped | None:
        """Returns what came of a swap; None: the version was another one."""

    @abstractmethod
    def update_many_queries(self, updates: Sequence[Update]) -> Queries[Outcomes]:
        """Write these, in the order of their keys, where the version is still the one named."""

    def load_many_queries(self, keys: Sequence[str]) -> Queries[dict[str, Entry]]:
        """Returns what is there of these keys."""
        answer = yield from self._among("load_many", keys)
        found = {key: entry_of(*entry) for key, *entry in answer.rows}
        nothing = Entry(now=exactly(answer.rows[0][1]))
        return {key: found.get(key, nothing) for key in keys}

    def scan_queries(self, prefix: str, cursor: str | None, limit: int) -> Queries[Page]:
        """Returns a page in the order of the keys."""
        if cursor is None:
            answer = yield from self.reading("first_page", start=prefix, most=limit)
        else:
            answer = yield from self.reading("next_page", start=cursor, most=limit)
        found = [(key, entry_of(*entry)) for key, *entry in answer.rows if key.startswith(prefix)]
        return Page(tuple(found), found[-1][0] if len(found) == limit else None)

    def turns_queries(self, keys: Sequence[str]) -> Queries[dict[str, PollResult]]:
        """Returns what those who wait for these keys want to know."""
        answer = yield from self._among("turns", keys)
        return {
            key: PollResult(version, turn, entry_of(now, version, record), mode == "exclusive")
            for key, version, turn, mode, now, record in answer.rows
        }

    def _among(self, which: str, keys: Sequence[str]) -> Query:
        values = {f"k{n}": keys[min(n, len(keys) - 1)] for n in range(rounded(len(keys)))}
        return Query(self.sql(which, keys=", ".join(f":{name}" for name in values)), values)

    # --- what `setup` asks of a kind of database ----------------------------------------------

    def create_statement(self, probe: TableProbe) -> str:
        """Returns one statement that makes the table."""
        return self.sql("create", **self.on_server(probe))

    def on_server(self, probe: TableProbe) -> dict[str, str]:
        """Returns what the table's definition depends on."""
        return {}

    def found(self, probe: TableProbe) -> None:
        """Take note that the table is there."""

    def look_values(self) -> Mapping[str, Any]:
        """Returns how the table is named when it is looked for."""
        return {"name": self.table.name}

    def user_name(self, probe: TableProbe) -> str:
        """Returns the user for use in SQL."""
        return self.quoted(probe.who)


def facts_of(name: str, copy: str, *caveats: str, push: bool = False) -> Facts:
    """Returns what can be relied on. `copy` is what this kind of database calls its copies."""
    return Facts(
        name=name,
        linearizable=True,
        clock="store",
        reach="network",
        wakeup="push" if push else "poll",
        durable=True,
        native_async=True,
        amends=True,
        batch=BATCH,
        caveats=(
            f"After a failover to an asynchronous {copy} the last writes may be missing: two "
            "parties may then believe that they hold a lock, for up to a ttl; only the "
            "fence tells them apart.",
            "The server's clock decides expiry: have it slewed, never set back or forward.",
            *caveats,
        ),
    )


def rounded(size: int) -> int:
    """Returns the next power of two: so there are few different statements."""
    return 1 << (size - 1).bit_length()
