"""Results in a table of PostgreSQL, MySQL, MariaDB or SQLite."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from holdfast.api.options import Seconds
from holdfast.errors import Misconfigured
from holdfast.fencing import sql
from holdfast.fencing.gate import Fenced
from holdfast.results.base import Codec, Found, Results, codec_of, seconds_of

TABLE = "holdfast_results"
_NOW = sa.func.current_timestamp(type_=sa.DateTime(timezone=True))


class SQLResults(Results):
    """Keeps results in a table, one row for each key.

    `setup()` makes the table, and the one for fences. A result's age is counted by the server's
    clock, in whole seconds.

    engine  a blocking engine of SQLAlchemy's
    table   the name of the table
    ttl     how long a result is good; None: for ever
    codec   `json`, `bytes`, or a `Codec` of your own
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        table: str = TABLE,
        ttl: Seconds | None = None,
        codec: str | Codec = "json",
    ) -> None:
        self._engine = engine
        self._ttl_s = seconds_of(ttl)
        self._codec = codec_of(codec)
        self._metadata = sa.MetaData()
        # Databases compare texts in ways of their own; a digest is exact everywhere.
        self._table = sa.Table(
            table,
            self._metadata,
            sa.Column("digest", sa.String(64), primary_key=True),
            sa.Column(
                "name",
                # A database's own encoding may not have all letters of a key.
                sa.Text().with_variant(mysql.TEXT(charset="utf8mb4"), "mysql", "mariadb"),
                nullable=False,
            ),
            sa.Column(
                "body",
                sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"),
                nullable=False,
            ),
            sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        )

    def setup(self) -> None:
        """Create the tables. May be repeated."""
        with self._engine.begin() as tx:
            self._metadata.create_all(tx)
            sql.setup(tx)

    def find(self, key: str) -> Found | None:
        table = self._table
        look = sa.select(table.c.body, table.c.made_at, _NOW).where(table.c.digest == _digest(key))
        try:
            with self._engine.connect() as connection:
                row = connection.execute(look).first()
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as exc:
            self._check_table(exc)
            raise
        if row is None:
            return None
        body, made_at, now = row
        if self._ttl_s is not None and (now - made_at).total_seconds() >= self._ttl_s:
            return None
        return Found(self._codec.decode(bytes(body)))

    def _check_table(self, exc: sa.exc.DBAPIError) -> None:
        """Raise if the table is to blame for this error."""
        name = self._table.name
        if not sa.inspect(self._engine).has_table(name):
            raise Misconfigured(
                f"The table {name} is missing: call setup() of SQLResults once, as a user who may "
                f"create tables."
            ) from exc

    def publish(self, key: str, value: Any, lease: Fenced) -> None:
        table, body = self._table, self._codec.encode(value)
        with self._engine.begin() as tx:
            sql.admit(tx, lease, key=key)
            tx.execute(table.delete().where(table.c.digest == _digest(key)))
            tx.execute(
                table.insert().values(digest=_digest(key), name=key, body=body, made_at=_NOW)
            )


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()
