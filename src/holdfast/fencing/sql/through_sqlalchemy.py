"""The same on a Connection or Session of SQLAlchemy; its asyncio flavours `run_sync` this."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.orm import Session, scoped_session

from holdfast.errors import Unsupported, UsageError
from holdfast.fencing.gate import Fence
from holdfast.fencing.sql.connections import NOT_OPEN, sqlite_is_open
from holdfast.fencing.sql.dialects import Dialect, Reply, dialect_of
from holdfast.fencing.sql.steps import Statement, Steps, admit_steps, setup_steps
from holdfast.runtime.run import run

_ADVICE = 'Use another isolation level than "AUTOCOMMIT" for this connection.'


def admit(given: Any, table: str, fence: Fence) -> None:
    """Admit the fence in the transaction of a Connection or Session."""
    connection = _connection_of(given)
    dialect = dialect_of(connection.dialect.name)
    began = not connection.in_transaction()
    if began:
        connection.begin()  # as the first statement would
    try:
        _check_open(connection, dialect)
    except UsageError:
        if began:
            connection.rollback()
        raise
    _run(connection, admit_steps(dialect, table, fence))


def setup(given: Any, table: str) -> None:
    """Make the table."""
    connection = _connection_of(given)
    _run(connection, setup_steps(dialect_of(connection.dialect.name), table))


def _connection_of(given: Any) -> Connection:
    if isinstance(given, Connection):
        return given
    if isinstance(given, (Session, scoped_session)):
        return given.connection()
    raise UsageError(
        f"{type(given).__name__} has no transaction of yours: give the Connection of "
        f"`with engine.begin() as tx:`, or a Session."
    )


def _check_open(connection: Connection, dialect: Dialect) -> None:
    pooled = connection.connection
    if dialect.name == "sqlite":
        is_open = sqlite_is_open(pooled.driver_connection)
    else:
        try:
            dbapi: Any = pooled.dbapi_connection
            is_open = not connection.dialect.detect_autocommit_setting(dbapi)
        except NotImplementedError:
            raise Unsupported(
                f"The driver {connection.dialect.driver!r} does not tell whether it commits "
                "every statement by itself: use another driver."
            ) from None
    if not is_open:
        raise UsageError(NOT_OPEN + _ADVICE)


def _run(connection: Connection, steps: Steps[None]) -> None:
    def execute(statement: Statement) -> Reply:
        sql = _clause(statement.dialect, statement.name, statement.table)
        result = connection.execute(sql, statement.values)
        if result.returns_rows:
            return Reply(rows=result.fetchall())
        return Reply(insert_id=result.lastrowid if statement.name == "admit" else None)

    run(steps, {}, {Statement: execute})


@cache
def _clause(dialect: Dialect, statement: str, table: str) -> TextClause:
    return text(dialect.sql(statement, table))
