"""From URLs and options to what a driver is told when it connects.

SQLAlchemy parses URLs and translates them into the arguments of each driver, except for plain ones
(`address`); the connections themselves are opened and used without it (docs/adr/0009).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.errors import BadOption, BadURL, Misconfigured, MissingDriver
from holdfast.extras import needed
from holdfast.stores.sql.address import Address, plain_address
from holdfast.stores.sql.mysql import MySQLDialect
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.sql.protocol import Dialect, Table
from holdfast.stores.url import StoreURL, redact

if TYPE_CHECKING:
    from sqlalchemy import URL

    AnyURL: TypeAlias = Address | URL

MULTI_STATEMENTS = 1 << 16  # several statements in one message; values are quoted all the same
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


def url_and_options(url: StoreURL, given: Mapping[str, Any]) -> tuple[AnyURL, Options]:
    """Returns the address, without the options that are ours, and those."""
    parsed = plain_address(url.text) or _through_sqlalchemy(url.text)
    if not parsed.database:
        raise BadURL(
            f"{redact(url.text)!r} names no database: {url.scheme}://user:password@host/DATABASE"
        )
    query = dict(parsed.query)
    ours = {name: query.pop(name) for name in OURS & query.keys()}
    family = parsed.get_backend_name()
    family = "postgresql" if family == "postgres" else family
    return parsed.set(drivername=family, query=query), options_of({**ours, **given})


def _through_sqlalchemy(text: str) -> URL:
    family = "postgresql" if text.startswith("postgres") else "mysql"
    with needed(f"The {family} store", DRIVERS[family][2]):
        from sqlalchemy import exc as sa
        from sqlalchemy.engine import make_url

    try:
        return make_url(text)
    except (sa.ArgumentError, ValueError) as exc:
        raise BadURL(f"{redact(text)!r} is not a database URL: {redact(exc)}") from None


def dialect_for(name: str, table: Table) -> Dialect:
    """Returns what the store says to the kind of database that SQLAlchemy calls so."""
    if name not in DIALECTS:
        hint = " (use sqlite:///path for a file)" if name == "sqlite" else ""
        raise BadURL(f"Holdfast keeps no locks in {name} through SQLAlchemy{hint}.")
    return DIALECTS[name](table)


def plain(url: URL) -> URL:
    """The address for the blocking driver of the same database."""
    dialect_for(url.get_backend_name(), Table())
    return url.set(drivername=url.get_backend_name())


def place_of(url: AnyURL) -> str:
    """An address that can be shown."""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()} at {url.host or 'localhost'}{port}/{url.database or ''}"


# --- what drivers are told ------------------------------------------------------------------


def arguments_for(
    url: AnyURL, options: Options, face: Literal["blocking", "asyncio"]
) -> dict[str, Any]:
    """Returns how the driver for this face connects to this address."""
    family = url.get_backend_name()
    blocking_driver, asyncio_driver, extra = DRIVERS[family]
    driver = blocking_driver if face == "blocking" else asyncio_driver
    arguments = _defaults(family, options)
    if driver == "pymysql":
        # Two different ones would be set on the socket by turns, twice per statement.
        arguments |= {"read_timeout": options.timeout_s, "write_timeout": options.timeout_s}
    try:
        with needed(f"The {family} store", extra):
            if isinstance(url, Address):
                import_module(blocking_driver)
                return {**arguments, **url.arguments()}
            url = url.set(drivername=f"{family}+{driver}")
            kind: Any = url.get_dialect()
            translated = kind(dbapi=kind.import_dbapi()).create_connect_args(url)[1]
    except MissingDriver:
        raise
    except ValueError as exc:
        raise BadURL(f"An option of the URL has a value that makes no sense: {exc}.") from exc
    translated.pop("context", None)  # how SQLAlchemy wants psycopg to convert values
    if "client_flag" in translated:
        translated["client_flag"] |= MULTI_STATEMENTS
    if "ssl" in translated:
        translated["ssl"] = _tls_context(translated["ssl"])
    return {**arguments, **translated}


def _tls_context(given: dict[str, Any]) -> Any:
    """Returns what PyMySQL makes of `ssl_ca=…` and its like, which aiomysql wants ready-made."""
    from pymysql import connect

    try:
        return connect(ssl=given, defer_connect=True).ctx
    except (OSError, ValueError) as exc:
        names = ", ".join(f"ssl_{name}={value}" for name, value in given.items())
        raise Misconfigured(f"No TLS connection can be made with {names}: {exc}.") from exc


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
        # In a transaction of ours the server waits for us for two seconds; MySQL cannot do that.
        "init_command": "SET SESSION innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES'"
        " /*M! , idle_transaction_timeout = 2 */",
    }
