"""A fence column in the caller's own table, for a gate in every row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.errors import BadOption, StaleFence, UsageError
from holdfast.fencing.gate import Fence, Fenced, fence_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

C = TypeVar("C")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,2}")


class UnlessStale(Generic[C]):
    """What an UPDATE or a DELETE needs, so that a stale holder changes no row.

    condition  for the WHERE
    value      the fence, which the column is set to
    """

    def __init__(self, condition: C, fence: Fence) -> None:
        self._fence = fence
        self.condition = condition
        self.value = fence.fence

    def check(self, result: Any) -> None:
        """Raise `StaleFence` if no row was written. Takes a result, a cursor, or a row count."""
        count = result if isinstance(result, int) else getattr(result, "rowcount", None)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise UsageError("check() takes what execute() returned, a cursor, or a row count.")
        if count == 0:
            raise StaleFence(
                f"No row was written with fence {self.value} of {self._fence.key!r}: a later "
                f"holder has written it, or there is no such row.",
                key=self._fence.key,
                fence=self.value,
            )


@overload
def unless_stale(column: str, lease: Fenced, *, key: str | None = None) -> UnlessStale[str]: ...
@overload
def unless_stale(
    column: Any, lease: Fenced, *, key: str | None = None
) -> UnlessStale[ColumnElement[bool]]: ...
def unless_stale(column: Any, lease: Fenced, *, key: str | None = None) -> UnlessStale[Any]:
    """Returns the condition and the value for a fence column of your own.

        fresh = fencing.sql.unless_stale(report.c.fence, lease)
        done = tx.execute(
            update(report).where(report.c.id == 7, fresh.condition).values(fence=fresh.value, …)
        )
        fresh.check(done)  # StaleFence if no row was written

    `column` is SQLAlchemy's, or its name: then the condition is SQL text. It must be a BIGINT. A
    row whose fence is NULL was never written under a lock, and every lease may write it.
    """
    fence = fence_of(lease, key)
    if isinstance(column, str):
        if not _COLUMN.fullmatch(column):
            raise BadOption(f"column is the name of a column, not {column!r}.")
        return UnlessStale(f"({column} IS NULL OR {column} <= {fence.fence})", fence)
    return UnlessStale(_condition(column, fence), fence)


def _condition(column: Any, fence: Fence) -> Any:
    try:
        from sqlalchemy import BigInteger, Float, Integer, Numeric, literal, or_

        kind = column.type
    except (ImportError, AttributeError):
        raise BadOption(
            f"column is a column of SQLAlchemy's or a name, not {type(column).__name__}."
        ) from None
    small = isinstance(kind, Integer) and not isinstance(kind, BigInteger)
    # A FLOAT of MySQL has 24 bits: it would take a fence for one that is minutes younger.
    rounds = isinstance(kind, Float)
    if small or rounds or not isinstance(kind, (Integer, Numeric)):
        raise BadOption(
            f"A fence has up to 63 bits, and the column {column} is {kind!r}: make it BigInteger."
        )
    return or_(column.is_(None), column <= literal(fence.fence, BigInteger))
