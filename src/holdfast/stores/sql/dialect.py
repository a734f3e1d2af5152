"""What the SQL stores ask of a database, written once for blocking and asyncio callers.

Every operation is a generator of queries with the suffix `_queries`: it yields a `Query`,
gets its `Answer`, and returns the outcome. `database.py` runs it on a blocking engine and
`aio.py` on an asyncio one. What differs between databases is in `postgres.py` and
`mysql.py`; the SQL is in the `.sql` files beside them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

from msgspec import Struct
from sqlalchemy.sql.compiler import IdentifierPreparer

from holdfast.core.commands import NOBODY, Wake
from holdfast.core.contract import Entry, Facts, Page, Version, exactly
from holdfast.core.records import Record, encode
from holdfast.errors import BadOption, ForeignStore, HoldfastError, Misconfigured, StoreReadOnly
from holdfast.stores.base import Outcome, entry_from
from holdfast.stores.sql.errors import Diagnosis, Doing, NotAllowed
from holdfast.stores.sql_files import read_queries
from holdfast.stores.waiting.handles import PollResult

R = TypeVar("R")

SCHEMA = 1
MARK = "holdfast schema"
COLUMNS = {"key", "mode", "owners", "fence", "expires_at", "version", "turn", "record"}
LONGEST_OWNERS = 1000
BATCH = 100  # how many renewals go in one statement
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Answer(Struct, frozen=True):
    """What came back: rows, how many were written, and MySQL's LAST_INSERT_ID."""

    rows: Sequence[Any] = ()
    count: int = 0
    last_id: int = 0


class Query(Struct, frozen=True):
    """One statement on its way, a transaction of its own; values are named as in `:key`."""

    sql: str
    values: dict[str, Any] = {}
    writing: bool = False
    shows: bool = True  # it returns rows

    @property
    def doing(self) -> Doing:
        """What breaks when the connection does."""
        return "writing" if self.writing else "reading"

    def __iter__(self) -> Generator[Query, Any, Answer]:
        answer: Answer = yield self
        return answer


Queries: TypeAlias = Generator[Query, Any, R]


class Table(Struct, frozen=True):
    """Where the locks are."""

    name: str = "holdfast_locks"
    schema: str | None = None

    def checked(self) -> Table:
        """With names that need no quoting tricks."""
        for what, name in (("table", self.name), ("schema", self.schema or "public")):
            if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
                raise BadOption(
                    f"{what} is a name of at most 63 letters, digits and underscores, not {name!r}."
                )
        return self

    def quoted(self, preparer: IdentifierPreparer) -> str:
        """The name for use in SQL."""
        names = [self.schema, self.name] if self.schema else [self.name]
        return ".".join(preparer.quote(name) for name in names)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class Update(Struct, frozen=True):
    """A swap that goes with others."""

    key: str
    version: int
    record: Record
    columns: dict[str, Any]


class Sight(Struct, frozen=True):
    """What was found where the table should be."""

    schema: str | None
    name: str | None
    mark: str | None
    columns: str | None
    who: str
    place: str | None
    standby: bool | int
    server: str

    def is_ours(self, table: Table) -> bool:
        """Whether the table is there and of our making; raises if it is something else."""
        if self.name is None:
            return False
        marked = re.fullmatch(rf"{MARK} (\d+)", self.mark or "")
        if marked is None and set((self.columns or "").split(",")) != COLUMNS:
            raise ForeignStore(
                f"The table {table} in {self.place!r} was not made by Holdfast, and was left "
                f"alone: name another one, as in ?table=my_locks"
            )
        schema = int(marked[1]) if marked else SCHEMA  # a dump may have dropped the comment
        if schema > SCHEMA:
            raise Misconfigured(
                f"The table {table} has the newer schema {schema} (this release knows "
                f"{SCHEMA}): upgrade holdfast."
            )
        if schema < SCHEMA:
            raise Misconfigured(
                f"The table {table} has the old schema {schema}, and this release needs "
                f"{SCHEMA}: when no program uses the locks any more, drop the table and let "
                f"`holdfast setup` make it anew."
            )
        return True


class Dialect(ABC):
    """One kind of database, and the table in it."""

    facts: ClassVar[Facts]
    diagnosis: ClassVar[Diagnosis]
    sql_file: ClassVar[Path]
    returning: ClassVar[bool]  # whether its writes return rows

    def __init__(self, table: Table, preparer: IdentifierPreparer) -> None:
        self.table = table
        self._preparer = preparer
        self._raw = read_queries(self.sql_file)
        self._fill = {
            "table": table.quoted(preparer),
            "clock": self._raw["clock"],
            "mark": f"{MARK} {SCHEMA}",
            **self.fragments(),
        }
        names = ("look", "load", "insert", "update", "delete", "first_page", "next_page")
        self._statements = {name: self.sql(name) for name in names}

    def sql(self, name: str, **more: str) -> str:
        """A statement of the file with the table's name in it."""
        return self._raw[name].format(**self._fill, **more)

    def fragments(self) -> dict[str, str]:
        """Further pieces that the file's statements are made of."""
        return {}

    def reading(self, which: str, /, **values: Any) -> Query:
        """A statement of the file with values."""
        return Query(self._statements[which], values)

    def writing(self, which: str, /, **values: Any) -> Query:
        """The same, for one that changes something."""
        return Query(self._statements[which], values, True, self.returning)

    # --- records ----------------------------------------------------------------------------

    def load_queries(self, key: str) -> Queries[Entry]:
        """What is there now."""
        answer = yield from self.reading("load", key=key)
        return entry_of(*answer.rows[0])

    @abstractmethod
    def swap_queries(
        self, key: str, version: Version, record: Record | None, wake: Wake
    ) -> Queries[Outcome]:
        """Write if the version is still this one."""

    @abstractmethod
    def update_many_queries(
        self, updates: Sequence[Update]
    ) -> Queries[Sequence[Outcome | Exception]]:
        """Write these, in the order of their keys, where the version is still the one named."""

    def load_many_queries(self, keys: Sequence[str]) -> Queries[dict[str, Entry]]:
        """What is there of these keys."""
        answer = yield from self._among("load_many", keys)
        found = {key: entry_of(*entry) for key, *entry in answer.rows}
        nothing = Entry(now=exactly(answer.rows[0][1]))
        return {key: found.get(key, nothing) for key in keys}

    def scan_queries(self, prefix: str, cursor: str | None, limit: int) -> Queries[Page]:
        """A page in the order of the keys."""
        if cursor is None:
            answer = yield from self.reading("first_page", start=prefix, most=limit)
        else:
            answer = yield from self.reading("next_page", start=cursor, most=limit)
        found = [(key, entry_of(*entry)) for key, *entry in answer.rows if key.startswith(prefix)]
        return Page(tuple(found), found[-1][0] if len(found) == limit else None)

    def turns_queries(self, keys: Sequence[str]) -> Queries[dict[str, PollResult]]:
        """What those who wait for these keys want to know; the record only of free ones."""
        answer = yield from self._among("turns", keys)
        return {
            key: PollResult(
                version,
                turn,
                None if free is None else entry_of(now, version, free),
                mode == "exclusive",
            )
            for key, version, turn, mode, now, free in answer.rows
        }

    def _among(self, which: str, keys: Sequence[str]) -> Query:
        values = {f"k{n}": keys[min(n, len(keys) - 1)] for n in range(rounded(len(keys)))}
        return Query(self.sql(which, keys=", ".join(f":{name}" for name in values)), values)

    # --- the table --------------------------------------------------------------------------

    def ready_queries(self) -> Queries[None]:
        """See to it that the table is there and ours."""
        sight = yield from self._look_queries()
        if sight.is_ours(self.table):
            self.found(sight)
            return
        if sight.standby:
            raise StoreReadOnly(
                f"The table {self.table} is missing, and this is a standby that cannot make it: "
                f"connect to the primary."
            )
        create = self.create_statement(sight)
        trouble: HoldfastError | None = None
        try:
            yield from Query(create, writing=True, shows=False)
        except NotAllowed as refused:
            raise self._not_allowed(sight) from refused.__cause__
        except HoldfastError as exc:
            trouble = exc  # many may create it at once, and all but one fail
        sight = yield from self._look_queries()
        if sight.is_ours(self.table):
            self.found(sight)
        else:
            raise trouble or Misconfigured(f"The table {self.table} could not be created.")

    def ddl_queries(self) -> Queries[str]:
        """What an administrator has to run, as text."""
        sight = yield from self._look_queries()
        return self.ddl(sight)

    def ddl(self, sight: Sight) -> str:
        """The statements that make the table."""
        return f"{self.sql('create', **self.on_server(sight))};\n"

    def create_statement(self, sight: Sight) -> str:
        """The same as one statement."""
        return self.sql("create", **self.on_server(sight))

    def on_server(self, sight: Sight) -> dict[str, str]:
        """What the table's definition depends on."""
        return {}

    def found(self, sight: Sight) -> None:
        """The table is there."""

    def look_values(self) -> Mapping[str, Any]:
        """How the table is named when it is looked for."""
        return {"name": self.table.name}

    def _look_queries(self) -> Queries[Sight]:
        answer = yield from self.reading("look", **self.look_values())
        return Sight(*answer.rows[0])

    def _not_allowed(self, sight: Sight) -> Misconfigured:
        grant = self.sql("grant", user=self.user_name(sight))
        return Misconfigured(
            f"The table {self.table} is missing in {sight.place!r}, and {sight.who} may not "
            f"create it. Have an administrator run:\n\n{self.ddl(sight)}{grant};\n"
        )

    def user_name(self, sight: Sight) -> str:
        """The user for use in SQL."""
        return self._preparer.quote(sight.who)


def entry_of(now: int, version: int | None, record: str | None) -> Entry:
    """An entry from a row."""
    if version is None or record is None:
        return Entry(now=exactly(now))
    return entry_from(record, version, exactly(now))


def rounded(size: int) -> int:
    """The next power of two: so there are few different statements."""
    return 1 << (size - 1).bit_length()


def columns_of(record: Record, wake: Wake) -> dict[str, Any]:
    """What is written: the record, and for people what can be read off it."""
    holders = record.holders
    owners = ", ".join(sorted({holder.owner for holder in holders})).replace("\0", "\ufffd")
    return {
        "mode": holders[0].mode if holders else "free",
        "owners": owners if len(owners) <= LONGEST_OWNERS else f"{owners[: LONGEST_OWNERS - 1]}…",
        "fence": record.fence,
        "expires_at": max((holder.expires_at for holder in holders), default=None),
        "turn": int(wake != NOBODY),
        "record": encode(record).decode(),
    }
