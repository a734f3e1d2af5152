"""From URLs and options to what a driver is told when it connects.

SQLAlchemy parses URLs and translates them into the arguments of each driver; the connections
themselves are opened and used without it (docs/adr/0009).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import URL
from sqlalchemy import exc as sa
from sqlalchemy.engine import make_url

from holdfast.errors import BadOption, BadURL, MissingDriver
from holdfast.stores.sql.mysql import MySQLDialect
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.sql.protocol import Dialect, Table
from holdfast.stores.sql.tls import tls_of
from holdfast.stores.url import StoreURL, redact

OURS = frozenset({"table", "schema", "wakeup", "pool_size", "timeout_s"})

DIALECTS: dict[str, type[Dialect]] = {
    "postgresql": PostgreSQLDialect,
    "mysql": MySQLDialect,
    "mariadb": MySQLDialect,
}
# Per family: the blocking driver, the asyncio one, and the extra that brings both.
DRIVERS = {
    "postgresql": ("psycopg", "psycopg_async", "postgres"),
    "mysql": ("pymysql", "aiomysql", "mysql"),
    "mariadb": ("pymysql", "aiomysql", "mysql"),
}


class Options(Struct, frozen=True):
    """What can be said about an SQL store, in the URL or as arguments of `connect`."""

    table: Table
    wakeup: str
    pool_size: int
    timeout_s: float


def options_of(given: Mapping[str, Any]) -> Options:
    """Returns our own options, checked."""
    if unknown := given.keys() - OURS:
        raise BadOption(f"An SQL store has no option {', '.join(sorted(unknown))}.")
    wakeup = given.get("wakeup", "auto")
    if wakeup not in ("auto", "poll"):
        raise BadOption(f"wakeup is 'auto' or 'poll', not {wakeup!r}.")
    table = Table(given.get("table", "holdfast_locks"), given.get("schema")).checked()
    pool_size, timeout_s = _number(given, "pool_size"), _number(given, "timeout_s")
    return Options(table, wakeup, int(pool_size), timeout_s)


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given.get(name, 10)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 1 <= number <= 3600:
        raise BadOption(f"{name} is a number from 1 to 3600, not {value!r}.")
    return number


def url_and_options(url: StoreURL, given: Mapping[str, Any]) -> tuple[URL, Options]:
    """Returns the address for SQLAlchemy, without the options that are ours, and those."""
    try:
        parsed = make_url(url.text)
    except (sa.ArgumentError, ValueError) as exc:
        raise BadURL(f"{redact(url.text)!r} is not a database URL: {redact(exc)}") from None
    if not parsed.database:
        raise BadURL(
            f"{redact(url.text)!r} names no database: {url.scheme}://user:password@host/DATABASE"
        )
    query = dict(parsed.query)
    ours = {name: query.pop(name) for name in OURS & query.keys()}
    family = parsed.get_backend_name()
    family = "postgresql" if family == "postgres" else family
    return parsed.set(drivername=family, query=query), options_of({**ours, **given})


def dialect_for(name: str, table: Table) -> Dialect:
    """Returns what the store says to the kind of database that SQLAlchemy calls so."""
    if name not in DIALECTS:
        hint = " (use sqlite:///path for a file)" if name == "sqlite" else ""
        raise BadURL(f"Holdfast keeps no locks in {name} through SQLAlchemy{hint}.")
    return DIALECTS[name](table)


def place_of(url: URL) -> str:
    """An address that can be shown."""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()} at {url.host or 'localhost'}{port}/{url.database or ''}"


# --- what drivers are told ------------------------------------------------------------------


def arguments_for(url: URL, options: Options, *, blocking: bool) -> dict[str, Any]:
    """Returns how the driver connects to this address: the blocking one, or the asyncio one."""
    family = url.get_backend_name()
    blocking_driver, asyncio_driver, extra = DRIVERS[family]
    driver = blocking_driver if blocking else asyncio_driver
    arguments = _defaults(family, options)
    if driver == "pymysql":
        # Two different ones would be set on the socket by turns, twice per statement.
        arguments |= {"read_timeout": options.timeout_s, "write_timeout": options.timeout_s}
    url, tls = (url, {}) if family == "postgresql" else tls_of(url)
    url = url.set(drivername=f"{family}+{driver}")
    try:
        kind: Any = url.get_dialect()
        translated = kind(dbapi=kind.import_dbapi()).create_connect_args(url)[1]
    except ImportError as exc:
        raise MissingDriver(
            f"The {family} store needs {exc.name}: pip install 'holdfast[{extra}]'"
        ) from exc
    except ValueError as exc:
        raise BadURL(f"An option of the URL has a value that makes no sense: {exc}.") from exc
    translated.pop("context", None)  # how SQLAlchemy wants psycopg to convert values
    return {**arguments, **translated, **tls}


def _defaults(family: str, options: Options) -> dict[str, Any]:
    connect_timeout = {"connect_timeout": max(2, round(options.timeout_s))}
    if family == "postgresql":
        return connect_timeout | {
            "tcp_user_timeout": round(options.timeout_s * 1000),
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "application_name": "holdfast",
            # Another one may be set for the user, the database or the server, which may lack
            # characters.
            "client_encoding": "utf8",
        }
    return connect_timeout | {
        "charset": "utf8mb4",
        # Our own statements lock a row for a moment. One that somebody else keeps locked would be
        # waited for for 50 s, and with it all leases that are renewed together. And the mode of
        # the server may cut what is too long, or store NULL for the owners of a free lock.
        "init_command": "SET SESSION innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES'",
    }
