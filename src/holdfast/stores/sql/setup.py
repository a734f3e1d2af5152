"""The table: finding it, checking that it is ours, and creating it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.errors import ForeignStore, HoldfastError, Misconfigured, StoreReadOnly
from holdfast.stores.sql.errors import NotAllowed
from holdfast.stores.sql.protocol import MARK, SCHEMA, Queries, Query, Table

if TYPE_CHECKING:
    from holdfast.stores.sql.protocol import Dialect

COLUMNS = {"key", "mode", "owners", "fence", "expires_at", "version", "turn", "record"}


class TableProbe(Struct, frozen=True):
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
        """Returns whether the table is there and of our making; raises if it is something else."""
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


def ready_queries(dialect: Dialect) -> Queries[None]:
    """See to it that the table is there and ours."""
    probe = yield from probe_queries(dialect)
    if probe.is_ours(dialect.table):
        dialect.found(probe)
        return
    if probe.standby:
        raise StoreReadOnly(
            f"The table {dialect.table} is missing, and this is a standby that cannot make it: "
            f"connect to the primary."
        )
    trouble: HoldfastError | None = None
    try:
        yield from Query(dialect.create_statement(probe), writing=True, shows=False)
    except NotAllowed as refused:
        raise _not_allowed(dialect, probe) from refused.__cause__
    except HoldfastError as exc:
        trouble = exc  # many may create it at once, and all but one fail
    probe = yield from probe_queries(dialect)
    if not probe.is_ours(dialect.table):
        raise trouble or Misconfigured(f"The table {dialect.table} could not be created.")
    dialect.found(probe)


def ddl_queries(dialect: Dialect) -> Queries[str]:
    """Returns what an administrator has to run, as text."""
    return ddl(dialect, (yield from probe_queries(dialect)))


def ddl(dialect: Dialect, probe: TableProbe) -> str:
    """Returns the statements that make the table."""
    return f"{dialect.sql('create', **dialect.on_server(probe))};\n"


def probe_queries(dialect: Dialect) -> Queries[TableProbe]:
    """Look where the table should be."""
    answer = yield from dialect.reading("look", **dialect.look_values())
    return TableProbe(*answer.rows[0])


def _not_allowed(dialect: Dialect, probe: TableProbe) -> Misconfigured:
    grant = dialect.sql("grant", user=dialect.user_name(probe))
    return Misconfigured(
        f"The table {dialect.table} is missing in {probe.place!r}, and {probe.who} may not "
        f"create it. Have an administrator run:\n\n{ddl(dialect, probe)}{grant};\n"
    )
