# Made from admitting_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""`admit` and `setup` on whatever connection was given."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from holdfast.fencing.gate import Fenced, fence_of
from holdfast.fencing.sql.connections import Target, check_flavour, target_of
from holdfast.fencing.sql.dialects import TABLE, Reply
from holdfast.fencing.sql.steps import Statement, Steps, admit_steps, setup_steps
from holdfast.runtime.run import run

_AWAITED = False


def admit(tx: Any, lease: Fenced, *, key: str | None = None, table: str = TABLE) -> None:
    """Admit this lease's fence: the transaction may write, and none with a smaller fence after it.

    Call it first in the transaction. It raises `StaleFence` if a later holder of the lock was
    admitted before: let that leave the block, so that the transaction is rolled back. Until the
    transaction ends, the next holder's `admit` waits for it.

    `tx` is a connection in a transaction, or a cursor of one; it is not committed here. `lease` is
    a lease, or a `Fence` in a service that was sent one. `key` is the key that this data is
    guarded by, if you want that checked.
    """
    fence = fence_of(lease, key)
    if check_flavour(tx, asynchronous=_AWAITED) == "sqlalchemy":
        from holdfast.fencing.sql import through_sqlalchemy

        _blocking(tx, through_sqlalchemy.admit, table, fence)
        return
    target = target_of(tx, asynchronous=_AWAITED)
    target.check_open()
    _run(target, admit_steps(target.dialect, table, fence))


def setup(connection: Any, *, table: str = TABLE) -> None:
    """Make the table for fences, unless it is there. Commit afterwards, as after your own DDL."""
    if check_flavour(connection, asynchronous=_AWAITED) == "sqlalchemy":
        from holdfast.fencing.sql import through_sqlalchemy

        _blocking(connection, through_sqlalchemy.setup, table)
        return
    target = target_of(connection, asynchronous=_AWAITED)
    _run(target, setup_steps(target.dialect, table))


def _blocking(given: Any, call: Any, *arguments: Any) -> None:
    call(given, *arguments)


def _run(target: Target, steps: Steps[None]) -> None:
    def execute(statement: Statement) -> Reply:
        sql = target.sql(statement)
        cursor = target.connection.cursor(**target.cursor_options())
        with closing(cursor) as opened:
            return _reply(opened, sql, statement.values)

    run(steps, {}, {Statement: execute})


def _reply(cursor: Any, sql: str, values: dict[str, Any]) -> Reply:
    cursor.execute(sql, values)
    if cursor.description is not None:
        return Reply(rows=cursor.fetchall())
    return Reply(insert_id=getattr(cursor, "lastrowid", None))
