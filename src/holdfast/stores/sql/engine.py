"""From URLs and options to SQLAlchemy engines, the blocking and the asyncio one.

Our own engines are in autocommit for good, so that a statement is a transaction and
nothing else goes over the wire: no BEGIN, no COMMIT, no ROLLBACK when a connection goes
back to its pool. An engine that an application lends us keeps its pool and its settings;
only our own statements run in autocommit.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import Struct
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy import exc as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from holdfast.errors import BadOption, BadURL, MissingDriver
from holdfast.stores.sql.dialect import Dialect, Table
from holdfast.stores.sql.mysql import MySQLDialect
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.sql.tls import check_encrypted, tls_of
from holdfast.stores.url import StoreURL, redact

Wakeup = Literal["auto", "poll"]

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

    table: Table = Table()
    wakeup: Wakeup = "auto"
    pool_size: int = 10
    timeout_s: float = 10.0


def options_from(given: dict[str, Any]) -> Options:
    """Take our own options out of what was given, checked; the driver's stay."""
    default = Options()
    table = Table(given.pop("table", default.table.name), given.pop("schema", None)).checked()
    wakeup = given.pop("wakeup", default.wakeup)
    if wakeup not in get_args(Wakeup):
        raise BadOption(f"wakeup is 'auto' or 'poll', not {wakeup!r}.")
    pool_size = _number(given.pop("pool_size", default.pool_size), "pool_size", 1)
    timeout_s = _number(given.pop("timeout_s", default.timeout_s), "timeout_s", 1)
    return Options(table, wakeup, int(pool_size), timeout_s)


def _number(value: Any, name: str, least: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not least <= number <= 3600:
        raise BadOption(f"{name} is a number from {least} to 3600, not {value!r}.")
    return number


def url_from(url: StoreURL) -> tuple[URL, Options]:
    """The address for SQLAlchemy, without the options that are ours."""
    try:
        parsed = make_url(url.text)
    except (sa.ArgumentError, ValueError) as exc:
        raise BadURL(f"{redact(url.text)!r} is not a database URL: {redact(exc)}") from None
    if not parsed.database:
        raise BadURL(
            f"{redact(url.text)!r} names no database: {url.scheme}://user:password@host/DATABASE"
        )
    query = dict(parsed.query)
    options = options_from(query)
    family = parsed.get_backend_name()
    family = "postgresql" if family == "postgres" else family
    return parsed.set(drivername=family, query=query), options


def dialect_for(engine: Engine, table: Table) -> Dialect:
    """What the store says to this kind of database."""
    name = engine.dialect.name
    if name not in DIALECTS:
        hint = " (use sqlite:///path for a file)" if name == "sqlite" else ""
        raise BadURL(f"Holdfast keeps no locks in {name} through SQLAlchemy{hint}.")
    return DIALECTS[name](table, engine.dialect.identifier_preparer)


def place_of(url: URL) -> str:
    """An address that can be shown."""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()} at {url.host or 'localhost'}{port}/{url.database or ''}"


# --- engines of our own ---------------------------------------------------------------------


def blocking_engine(url: URL, options: Options) -> Engine:
    """A pool for threads."""
    family = url.get_backend_name()
    driver, _, extra = DRIVERS[family]
    url, arguments = _arguments(url, options)
    if driver == "pymysql":
        # Two different ones would be set on the socket by turns, twice per statement.
        for name in ("read_timeout", "write_timeout"):
            arguments["connect_args"].setdefault(name, options.timeout_s)
    try:
        return create_engine(url.set(drivername=f"{family}+{driver}"), **arguments)
    except ImportError as exc:
        raise _missing(family, extra, exc) from exc


def asyncio_engine(url: URL, options: Options) -> AsyncEngine:
    """A pool for one event loop."""
    family = url.get_backend_name()
    _, driver, extra = DRIVERS[family]
    url, arguments = _arguments(url, options)
    try:
        engine = create_async_engine(url.set(drivername=f"{family}+{driver}"), **arguments)
    except ImportError as exc:
        raise _missing(family, extra, exc) from exc
    if "ssl" in arguments["connect_args"]:
        event.listen(engine.sync_engine, "connect", check_encrypted)
    return engine


def _missing(family: str, extra: str, exc: ImportError) -> MissingDriver:
    return MissingDriver(f"The {family} store needs {exc.name}: pip install 'holdfast[{extra}]'")


def _arguments(url: URL, options: Options) -> tuple[URL, dict[str, Any]]:
    postgres = url.get_backend_name() == "postgresql"
    defaults = _postgres_defaults(options) if postgres else _mysql_defaults(options)
    connect_args = {name: value for name, value in defaults.items() if name not in url.query}
    if not postgres:
        url, tls = tls_of(url)
        connect_args |= tls
    return url, {
        "isolation_level": "AUTOCOMMIT",
        "skip_autocommit_rollback": True,
        "pool_reset_on_return": None,
        "pool_size": options.pool_size,
        "max_overflow": -1,  # `wires.py` keeps to the size
        "pool_use_lifo": True,
        "hide_parameters": True,
        "connect_args": connect_args,
        **({"use_native_hstore": False} if postgres else {}),
    }


def _postgres_defaults(options: Options) -> dict[str, Any]:
    return {
        "connect_timeout": max(2, round(options.timeout_s)),
        "tcp_user_timeout": round(options.timeout_s * 1000),
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "holdfast",
        # A user, a database or a server may have another one set, which has not all characters.
        "client_encoding": "utf8",
        # What is prepared, and where that can be, is decided in `libpq.py`.
        "prepare_threshold": None,
    }


def _mysql_defaults(options: Options) -> dict[str, Any]:
    return {
        "connect_timeout": max(2, round(options.timeout_s)),
        "charset": "utf8mb4",
        # Our own statements lock a row for a moment. One that somebody else keeps locked would be
        # waited for for 50 s, and with it all leases that are renewed together. And a server's mode
        # may cut what is too long, or take the owners of a free lock, which are none, for NULL.
        "init_command": "SET SESSION innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES'",
    }
