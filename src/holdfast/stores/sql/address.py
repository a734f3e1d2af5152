"""Plain addresses of PostgreSQL, without SQLAlchemy, whose import takes longer than a short job.

Whatever is written in another way than `PLAIN` is left to SQLAlchemy, which reads both the same:
tests/stores/sql/test_address.py compares them.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.discreet import hidden

PLAIN = re.compile(
    r"""postgres(?:ql)?(?:\+psycopg)?://
    (?:(?P<username>[\w.~%+-]+)(?::(?P<password>[\w.~%+!$*=-]*))?@)?
    (?P<host>[\w.-]+)?(?::(?P<port>\d+))?
    /(?P<database>[\w.-]+)
    (?:\?(?P<query>[\w.~%+=&/,:-]*))?""",
    re.VERBOSE | re.ASCII,
)


class Address(Struct, frozen=True):
    """As much of SQLAlchemy's `URL` as is used of it."""

    drivername: str
    username: str | None
    password: str | None
    host: str | None
    port: int | None
    database: str
    query: dict[str, str]

    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port}/{self.database})"  # without the password

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("host", self.host)]

    def get_backend_name(self) -> str:
        """Returns the kind of database."""
        return self.drivername.partition("+")[0]

    def set(self, **changes: Any) -> Address:
        """Returns the address with changes."""
        return replace(self, **changes)

    def arguments(self) -> dict[str, Any]:
        """Returns how psycopg connects to it."""
        named = {
            "user": self.username,
            "password": self.password,
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
        }
        return {name: value for name, value in named.items() if value} | self.query


def plain_address(text: str) -> Address | None:
    """Returns the parts of a plain URL; None if SQLAlchemy has to read it."""
    found = PLAIN.fullmatch(text)
    if found is None:
        return None
    pairs = parse_qsl(found["query"] or "")
    query = dict(pairs)
    if len(query) < len(pairs) or not query.keys().isdisjoint({"host", "port"}):
        return None  # several hosts
    username, password, port = found["username"], found["password"], found["port"]
    return Address(
        "postgresql",
        username and unquote(username),
        password and hidden(unquote(password)),
        found["host"],
        int(port) if port else None,
        found["database"],
        query,
    )
