"""What was given as a transaction: which driver, which database, and whether it is open.

No driver is imported: whoever has a connection has imported its driver. The first name of the
module of a class tells whose it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import Struct

from holdfast.errors import Unsupported, UsageError
from holdfast.fencing.sql.dialects import Dialect, dialect_of, with_percent
from holdfast.fencing.sql.steps import Statement

NOT_OPEN = (
    "No transaction is open: the connection commits every statement by itself (autocommit), and a "
    "check that is committed before the write protects nothing. "
)


class Driver(Struct, frozen=True):
    """How the connections of one library are used."""

    dialect: str
    percent: bool  # whether parameters are written as %(key)s
    is_open: Callable[[Any], bool]  # whether what is executed belongs to a transaction
    advice: str
    asynchronous: bool = False


class Target(Struct, frozen=True):
    """A connection that is understood."""

    connection: Any
    dialect: Dialect
    driver: Driver

    def sql(self, statement: Statement) -> str:
        """Returns a statement as this driver wants it."""
        return _written(
            statement.dialect, statement.name, statement.table, percent=self.driver.percent
        )

    def cursor_options(self) -> dict[str, Any]:
        """Returns what to ask for, so that rows are tuples whatever the application prefers."""
        if self.dialect.name == "postgresql" and library_of(self.connection) == "psycopg":
            from psycopg.rows import tuple_row

            return {"row_factory": tuple_row}
        return {}

    def check_open(self) -> None:
        """Raise unless a transaction is open or opens with the next statement."""
        if not self.driver.is_open(self.connection):
            raise UsageError(NOT_OPEN + self.driver.advice)


@cache
def _written(dialect: Dialect, statement: str, table: str, *, percent: bool) -> str:
    text = dialect.sql(statement, table)
    return with_percent(text) if percent else text


def _postgres_is_open(connection: Any) -> bool:
    return not connection.autocommit or int(connection.info.transaction_status) != 0


def _mysql_is_open(connection: Any) -> bool:
    in_transaction = 1
    return not connection.get_autocommit() or bool(connection.server_status & in_transaction)


def sqlite_is_open(connection: Any) -> bool:
    """Whether what is written next belongs to a transaction."""
    if connection.in_transaction:
        return True
    autocommit = getattr(connection, "autocommit", -1)  # before Python 3.12 there is none
    if isinstance(autocommit, bool):
        return not autocommit
    return connection.isolation_level is not None  # then sqlite3 begins one before it writes


def _django_is_open(connection: Any) -> bool:
    return connection.in_atomic_block or not connection.get_autocommit()


_PSYCOPG = "Use `with connection.transaction():`, or connect without autocommit=True."
_MYSQL = "Call connection.begin() first, or connect without autocommit=True."
_SQLITE = "Execute BEGIN IMMEDIATE first, or do not connect with isolation_level=None."
_DJANGO = "Use `with transaction.atomic():`."

# By library, and whether its connection is to be awaited.
DRIVERS = {
    ("psycopg", False): Driver("postgresql", True, _postgres_is_open, _PSYCOPG),
    ("psycopg", True): Driver("postgresql", True, _postgres_is_open, _PSYCOPG, True),
    ("psycopg2", False): Driver("postgresql", True, _postgres_is_open, _PSYCOPG),
    ("sqlite3", False): Driver("sqlite", False, sqlite_is_open, _SQLITE),
    ("aiosqlite", True): Driver("sqlite", False, sqlite_is_open, _SQLITE, True),
    ("pymysql", False): Driver("mysql", True, _mysql_is_open, _MYSQL),
    ("aiomysql", True): Driver("mysql", True, _mysql_is_open, _MYSQL, True),
    ("django", False): Driver("", True, _django_is_open, _DJANGO),
}
KNOWN = (
    "an SQLAlchemy Connection or Session, a connection or cursor of psycopg, psycopg2, sqlite3, "
    "aiosqlite, PyMySQL or aiomysql, or a Django connection"
)
# Of these, `AsyncConnection` and such are those that are awaited.
_BOTH_WAYS = ("psycopg", "sqlalchemy")
_ALWAYS_AWAITED = ("aiosqlite", "aiomysql")
_LIBRARIES = ("sqlalchemy", *(library for library, _ in DRIVERS))


def library_of(thing: object) -> str:
    """Returns the library whose object this is; empty if it is none that we know."""
    for kind in type(thing).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in _LIBRARIES:
            return library
    return ""


def is_awaited(thing: object, library: str) -> bool:
    """Whether this is the asyncio flavour of its library."""
    if library not in _BOTH_WAYS:
        return library in _ALWAYS_AWAITED
    names = [kind.__name__ for kind in type(thing).__mro__]
    return any(name.startswith(("Async", "async_")) for name in names)


def check_flavour(thing: object, *, asynchronous: bool) -> str:
    """Returns the library; raises for what nobody knows, and for the other face's."""
    library = library_of(thing)
    if not library:
        raise Unsupported(
            f"{type(thing).__name__} is not a connection that is known here: give {KNOWN}."
        )
    if is_awaited(thing, library) and not asynchronous:
        raise UsageError(
            f"{type(thing).__name__} is for asyncio: `from holdfast.fencing import aio`, and "
            f"`await aio.sql.admit(…)`."
        )
    if asynchronous and not is_awaited(thing, library):
        raise UsageError(
            f"{type(thing).__name__} blocks: use holdfast.fencing.sql, which is not awaited."
        )
    return library


def target_of(thing: Any, *, asynchronous: bool) -> Target:
    """Returns the connection of a driver or of Django. A cursor stands for its connection."""
    library = check_flavour(thing, asynchronous=asynchronous)
    driver = DRIVERS[library, asynchronous]
    connection = thing
    if library == "django":
        connection = getattr(thing, "db", thing)
    elif not hasattr(thing, "commit"):
        connection = getattr(thing, "connection", None)
    if not hasattr(connection, "cursor") or library_of(connection) != library:
        raise UsageError(f"{type(thing).__name__} is not a connection or cursor: give {KNOWN}.")
    name = driver.dialect or connection.vendor
    return Target(connection, dialect_of(name), driver)
