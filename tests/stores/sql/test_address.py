"""Plain addresses are read without SQLAlchemy, and as it reads them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.stores.sql import connect
from holdfast.stores.sql.address import plain_address
from holdfast.stores.url import parse

PLAIN = [
    "postgresql://localhost/app",
    "postgres://ann@db.example/app",
    "postgresql+psycopg://ann:secret@10.0.0.1:5433/app_2",
    "postgresql://a%40b:p%2Fw%3A%25@db-1.example:5432/app?sslmode=require&table=locks",
    "postgresql://ann:@db/app?application_name=my%20job&connect_timeout=3&schema=x",
    "postgresql:///app",
    "postgresql://:5433/app",
    "postgresql://ann:s3cr+t!$*=-~@db/app?sslrootcert=/etc/ca.pem&empty=&pool_size=3",
    "postgresql://ann:pw@db/app?options=-c%20search_path%3Dx,y",
]
# Left to SQLAlchemy: several hosts, IPv6, odd characters, no database, other databases.
OTHERS = [
    "postgresql://ann@/app?host=db1:5432&host=db2:5433",
    "postgresql://ann@/app?host=/var/run/postgresql",
    "postgresql://ann@[::1]:5432/app",
    "postgresql://ann:p@w@db/app",
    "postgresql://ann:pässword@db/app",
    "postgresql://db/app%20x",
    "postgresql://db",
    "postgresql+asyncpg://db/app",
    "mysql://ann@db/app",
]


@pytest.mark.parametrize("text", PLAIN)
def test_same_as_sqlalchemy(text: str) -> None:
    """Every part, our options, and what the driver is told, through both faces."""
    ours = connect.url_and_options(parse(text), {})
    assert plain_address(text) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "plain_address", lambda text: None)
        theirs = connect.url_and_options(parse(text), {})
    assert ours[1] == theirs[1]
    assert connect.place_of(ours[0]) == connect.place_of(theirs[0])
    for face in ("blocking", "asyncio"):
        told = [connect.arguments_for(url, ours[1], face) for url in (ours[0], theirs[0])]
        assert told[0] == told[1]


@pytest.mark.parametrize("text", OTHERS)
def test_the_rest_is_left_to_sqlalchemy(text: str) -> None:
    """Whatever is not plain is not guessed at."""
    assert plain_address(text) is None


def test_password_is_not_shown() -> None:
    """Neither by the address nor by what rich makes of it."""
    address = plain_address("postgresql://ann:s3cret@db/app")
    assert address is not None
    assert "s3cret" not in f"{address} {address!r} {address.__rich_repr__()}"


def test_sqlalchemy_is_not_imported() -> None:
    """For a plain address; its import takes longer than many a job under a lock."""
    code = (
        "import sys, holdfast\n"
        "holdfast.connect('postgresql://ann@127.0.0.1:1/app')\n"
        "assert 'psycopg' in sys.modules\n"
        "print(sorted(name for name in sys.modules if name.startswith('sqlalchemy')))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[]\n", ran.stderr
