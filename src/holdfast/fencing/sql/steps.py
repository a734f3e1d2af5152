"""What `admit` and `setup` say to a database, one statement after another. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.errors import Misconfigured
from holdfast.fencing.gate import Fence, check_admitted
from holdfast.fencing.sql.dialects import DIALECTS, Dialect, Reply, explained

R = TypeVar("R")
Steps: TypeAlias = Generator["Statement", Reply, R]


class Statement(Struct, frozen=True):
    """Something to be executed on the caller's connection."""

    dialect: Dialect
    name: str
    table: str
    values: dict[str, Any]

    def __iter__(self) -> Steps[Reply]:
        try:
            reply = yield self
        except Exception as exc:
            better = explained(exc, self.dialect, self.table)
            if better is None:
                raise
            raise better from exc
        return reply


def admit_steps(dialect: Dialect, table: str, fence: Fence) -> Steps[None]:
    """One statement. Raises `StaleFence` if a later holder was admitted before."""
    values = {"key": fence.key, "fence": fence.fence}
    reply = yield from Statement(dialect, "admit", table, values)
    remembered = dialect.remembered(reply)
    if remembered < fence.fence:  # it was raised to ours, so something on the way changes answers
        raise Misconfigured(
            f"The gate in {table} answered {remembered} to the fence {fence.fence}: a driver, a "
            f"proxy or a trigger changes what the database says. Roll back; nobody was kept out."
        )
    check_admitted(fence, remembered)


def setup_steps(dialect: Dialect, table: str) -> Steps[None]:
    """Make the table, unless it is there; raise if there is another one."""
    if (yield from _is_ours(dialect, table)):
        return
    if dialect.has("server"):
        reply = yield from Statement(dialect, "server", table, {})
        dialect = DIALECTS["mariadb" if "mariadb" in _first(reply).lower() else "mysql"]
    if dialect.has("alone"):
        yield from Statement(dialect, "alone", table, {})
    yield from Statement(dialect, "create", table, {})
    if not (yield from _is_ours(dialect, table)):
        raise Misconfigured(f"The table {table} could not be created.")


def _is_ours(dialect: Dialect, table: str) -> Steps[bool]:
    reply = yield from Statement(dialect, "look", table, {"name": dialect.look_name(table)})
    return dialect.is_ours([_values(row) for row in reply.rows], table)


def _values(row: Any) -> tuple[Any, ...]:
    return tuple(row.values() if isinstance(row, dict) else row)


def _first(reply: Reply) -> str:
    return str(_values(reply.rows[0])[0])
