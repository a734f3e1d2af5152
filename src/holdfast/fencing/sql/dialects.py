"""What is said to each database, and what its answers mean. Pure: there is no I/O here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.errors import (
    BadOption,
    ForeignStore,
    HoldfastError,
    Misconfigured,
    StoreReadOnly,
    Unsupported,
)
from holdfast.stores.sql_files import read_queries

TABLE = "holdfast_fences"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PARAMETER = re.compile(r":(\w+)")


class Reply(Struct, frozen=True):
    """What came back for a statement."""

    rows: Sequence[Any] = ()
    insert_id: int | None = None


class Dialect(Struct, frozen=True):
    """One kind of database."""

    name: str
    file: str
    quote_mark: str
    text_type: str
    number_type: str
    remembered: Callable[[Reply], int]  # what the gate remembers now, out of the reply to `admit`
    collation: str = ""

    def sql(self, statement: str, table: str) -> str:
        """Returns a statement for this table, with parameters such as `:key`."""
        parts = _parts(table)
        quoted = ".".join(f"{self.quote_mark}{part}{self.quote_mark}" for part in parts)
        return _statements(self.file)[statement].format(
            table=quoted,
            collation=self.collation,
            schema=f"'{parts[0]}'" if len(parts) > 1 else "DATABASE()",
        )

    def has(self, statement: str) -> bool:
        """Whether this database needs a statement of this name."""
        return statement in _statements(self.file)

    def look_name(self, table: str) -> str:
        """Returns how the statement `look` names the table."""
        return table if self.name == "postgresql" else _parts(table)[-1]

    def is_ours(self, columns: Sequence[Sequence[Any]], table: str) -> bool:
        """Returns whether the table is there and of our making; raises if it is another one."""
        if not columns:
            return False
        found = {(_text(name), _text(kind), bool(key)) for name, kind, key in columns}
        if found == {("lock_key", self.text_type, True), ("fence", self.number_type, False)}:
            return True
        raise not_ours(table)


def _by_row(reply: Reply) -> int:
    row = reply.rows[0]
    return int(next(iter(row.values())) if isinstance(row, dict) else row[0])


def _by_insert_id(reply: Reply) -> int:
    assert reply.insert_id is not None
    return int(reply.insert_id)


_MYSQL = ("mysql.sql", "`", "varchar", "bigint", _by_insert_id)

DIALECTS = {
    "postgresql": Dialect("postgresql", "postgresql.sql", '"', "text", "bigint", _by_row),
    "mysql": Dialect("mysql", *_MYSQL, "utf8mb4_0900_bin"),
    "mariadb": Dialect("mariadb", *_MYSQL, "utf8mb4_nopad_bin"),
    "sqlite": Dialect("sqlite", "sqlite.sql", '"', "text", "integer", _by_row),
}


def dialect_of(name: str) -> Dialect:
    """Returns the dialect of this name."""
    if name not in DIALECTS:
        raise Unsupported(
            f"There is no gate for {name!r}: it is {', '.join(DIALECTS)}. Use lease.fence in a "
            f"condition of your own."
        )
    return DIALECTS[name]


def ddl(dialect: str, *, table: str = TABLE) -> str:
    """Returns the statement that makes the table: for `postgresql`, `mysql`, `mariadb`, `sqlite`.

    For an administrator, or for a migration; `setup()` runs the same.
    """
    return dialect_of(dialect).sql("create", table) + ";\n"


def with_percent(sql: str) -> str:
    """Returns a statement with parameters such as `%(key)s`."""
    return _PARAMETER.sub(r"%(\1)s", sql)


@cache
def _statements(file: str) -> dict[str, str]:
    return read_queries(Path(__file__).with_name(file))


def _parts(table: str) -> list[str]:
    """Returns schema and name; raises if a name could do more in SQL than name something."""
    parts = table.split(".") if isinstance(table, str) else []
    if not 1 <= len(parts) <= 2 or not all(map(_IDENTIFIER.fullmatch, parts)):
        raise BadOption(
            f"table is a name of at most 63 letters, digits and underscores, perhaps after a "
            f"schema and a dot, not {table!r}."
        )
    return parts


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# --- errors -----------------------------------------------------------------------------------

# What an error of ours is known by: the SQLSTATE, MySQL's number, or SQLite's words.
_MISSING = {"42P01", "3F000", 1146, "no such table", "unknown database"}
_NOT_OURS = {
    *("42703", "42P10", "42804", "42809", "22003", "23502", "22P02"),
    *(1054, 1048, 1264, 1288, 1364, 1366, 1471),
    *("has no column named", "ON CONFLICT clause does not match", "constraint failed"),
    *("cannot modify", "datatype mismatch", "no such column", "cannot UPSERT"),
}
_READ_ONLY = {
    *("42501", "25006"),
    *(1142, 1143, 1290, 1792, 1836),
    *("readonly database",),
}


def explained(exc: BaseException, dialect: Dialect, table: str) -> HoldfastError | None:
    """Returns what to raise instead of an error that our table is to blame for; None: it is the
    engine's own affair, such as a deadlock, and stays what it is."""
    signs = _signs(exc)
    if _is_any(signs, _MISSING):
        return Misconfigured(
            f"The table {table} is missing: call holdfast.fencing.sql.setup(connection) once, or "
            f"have an administrator run:\n\n{ddl(dialect.name, table=table)}"
        )
    if _is_any(signs, _NOT_OURS):
        return not_ours(table)
    if _is_any(signs, _READ_ONLY):
        return StoreReadOnly(
            f"The table {table} cannot be written here: this user needs SELECT, INSERT and UPDATE "
            f"on it, and the transaction must not be read-only."
        )
    return None


def not_ours(table: str) -> ForeignStore:
    """Returns what to raise for a table that somebody else made."""
    return ForeignStore(
        f"The table {table} was not made by Holdfast, and was left alone: name another one, as in "
        f"table='my_fences'."
    )


def _signs(exc: BaseException) -> tuple[object, str]:
    """Returns the code of a driver's error, and its words. SQLAlchemy and Django wrap it."""
    original = getattr(exc, "orig", None) or exc
    if not _code(original) and original.__cause__ is not None:
        original = original.__cause__
    return _code(original), str(original)


def _code(exc: BaseException) -> object:
    if exc.args and isinstance(exc.args[0], int):
        return exc.args[0]  # MySQL's number says more than its SQLSTATE
    return getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)


def _is_any(signs: tuple[object, str], table: set[Any]) -> bool:
    code, words = signs
    if code is not None:
        return code in table
    return any(isinstance(known, str) and known in words for known in table)
