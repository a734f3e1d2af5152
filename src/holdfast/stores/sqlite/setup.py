"""Creates our tables in a new file, and refuses a file that is not ours."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import ForeignStore, Misconfigured
from holdfast.stores.sqlite.protocol import SQL
from holdfast.stores.sqlite.transport import Connection

APPLICATION_ID = 0x484F4C44  # "HOLD", in the file's header
SCHEMA = 1
# Every write puts one page into the log: small pages are faster.
PAGE_BYTES = 1024
_HEADER_BYTES = 100


def check_length(path: Path) -> None:
    """Refuse what is too short for an SQLite file: SQLite takes a very short file for an empty one.

    The file must not be opened to look into it. On POSIX systems, to close it ends all locks that
    SQLite has on it in this process, also those of other clients.
    """
    try:
        length = path.stat().st_size
    except OSError:
        return  # it does not exist, or SQLite will say why it cannot be opened
    if 0 < length < _HEADER_BYTES:
        raise ForeignStore(f"{path} is not an SQLite file; it was left alone: name another path.")


def create_tables(connection: Connection) -> None:
    """Create our tables, unless they are there."""
    if not _is_ours(connection):
        connection.run(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.run("PRAGMA journal_mode = WAL")
        with connection.transaction():
            if not _is_ours(connection):  # another process may have been faster
                connection.run(SQL["create_meta"])
                connection.run(SQL["create_locks"])
                connection.run(f"PRAGMA user_version = {SCHEMA}")
                connection.run(f"PRAGMA application_id = {APPLICATION_ID}")


def _is_ours(connection: Connection) -> bool:
    """Whether our tables are there. Raises if the file belongs to somebody else."""
    # In this order: the tables and our id are written together, so who sees tables sees the id.
    (tables,) = connection.run(SQL["count_tables"]).fetchone()
    (application,) = connection.run("PRAGMA application_id").fetchone()
    (schema,) = connection.run("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID:
        if schema > SCHEMA:
            raise Misconfigured(
                f"{connection.path} has the newer schema {schema} (this release knows {SCHEMA}): "
                f"upgrade holdfast."
            )
        return True
    if application or tables:
        raise ForeignStore(
            f"{connection.path} is an SQLite file that was not made by Holdfast, and was left "
            f"alone: name another path."
        )
    return False
