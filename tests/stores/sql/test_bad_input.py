"""What is wrong with an address, a user or a table is said clearly, and without secrets."""

from __future__ import annotations

from contextlib import closing

import pytest

import holdfast
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import (
    BadOption,
    BadURL,
    ForeignStore,
    HoldfastError,
    Misconfigured,
    StoreReadOnly,
    Unavailable,
)
from holdfast.stores.registry import open_store
from tests.engines.base import free_port, require
from tests.engines.mariadb import MariaDB
from tests.engines.proxy import Proxy
from tests.stores.sql.servers import Server


def refuse(url: str, kind: type[HoldfastError], *words: str) -> HoldfastError:
    """Check that a load fails like this, with the driver's error as the cause."""
    store = open_store(url)
    try:
        with pytest.raises(kind) as caught:
            store.load("k")
    finally:
        store.close()
    said = str(caught.value)
    assert "s3cret" not in said
    for word in words:
        assert word in said, said
    return caught.value


def test_wrong_password(server: Server) -> None:
    """A wrong password is told as such, and not shown."""
    user = server.new_user()
    failure = refuse(server.url(user=user, password="xs3cret"), Misconfigured, "password")
    assert failure.__cause__ is not None


def test_unknown_database(server: Server) -> None:
    """An unknown database is told as such."""
    refuse(server.url(database="nowhere"), Misconfigured, "nowhere", "create it")


def test_nobody_listens(server: Server) -> None:
    """A refused connection means that nothing was done; it may work later."""
    failure = refuse(server.url(port=str(free_port())), Unavailable)
    assert failure.__cause__ is not None


def test_unknown_host(server: Server) -> None:
    """A host that cannot be found may be a passing trouble."""
    refuse(f"{server.kind}://u:s3cret@no.such.host.invalid/db", Unavailable)


@pytest.mark.parametrize("name", ["authentication", "read-only", "certificates", "password-db"])
def test_server_whose_name_sounds_like_trouble(name: str) -> None:
    """What an error says is not what the server in it is called."""
    refuse(f"postgresql:///db?host=/nowhere/{name}", Unavailable, name)


def test_option_that_the_driver_does_not_know(server: Server) -> None:
    """It will not be known later either."""
    refuse(server.url(query="colour=red"), Misconfigured, "colour")


def test_no_right_to_create(server: Server) -> None:
    """Without DDL rights the error says what to run; when that was run, all is well."""
    table = server.new_table()
    grants = [] if server.is_postgres else ["SELECT ON holdfast.nothing_yet"]
    if not server.is_postgres:
        server.run("CREATE TABLE IF NOT EXISTS nothing_yet (a INT)")
    user = server.new_user(*grants)
    url = server.url(user=user, password="s3cret", query=f"table={table}")
    failure = refuse(url, Misconfigured, "may not create it", "CREATE TABLE", "GRANT SELECT")
    statements = str(failure).partition("\n\n")[2].split(";\n")
    for statement in statements:
        if statement.strip():
            server.run(statement)
    store = open_store(url)
    assert isinstance(store.swap("k", None, Record(1)), Swapped)
    store.close()


def test_no_right_to_write(server: Server) -> None:
    """A user who may only look gets a clear error when it comes to writing."""
    table = server.new_table()
    server.open(query=f"table={table}").setup()
    user = server.new_user(f"SELECT ON {table}")
    store = server.open(user=user, password="s3cret", query=f"table={table}")
    assert store.load("k").version is None
    with pytest.raises(Misconfigured, match="Grant the user"):
        store.swap("k", None, Record(1))
    store.close()


def test_missing_schema(postgres: Server) -> None:
    """A schema that does not exist is not created behind one's back."""
    url = postgres.url(query="schema=nowhere")
    refuse(url, Misconfigured, "does not exist. Create the schema")


def test_table_dropped_while_in_use(server: Server) -> None:
    """A table that vanishes is a misconfiguration, not an empty store."""
    table = server.new_table()
    store = server.open(query=f"table={table}")
    store.swap("k", None, Record(1))
    server.run(f"DROP TABLE {table}")
    with pytest.raises(Misconfigured, match="dropped while it was in use"):
        store.load("k")
    with pytest.raises(Misconfigured, match="dropped while it was in use"):
        store.swap("k", None, Record(1))
    store.setup()
    assert store.load("k").version is None
    store.close()


def test_foreign_table(server: Server) -> None:
    """A table of the same name that is not ours is left alone."""
    table = server.new_table()
    server.run(f"CREATE TABLE {table} (id INTEGER, note TEXT)")
    refuse(server.url(query=f"table={table}"), ForeignStore, "name another one")
    assert server.run(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize(("schema", "words"), [(0, "old schema 0"), (99, "newer schema 99")])
def test_other_schema_version(server: Server, schema: int, words: str) -> None:
    """A table of another release is told as such."""
    table = server.new_table()
    mark = f"holdfast schema {schema}"
    if server.is_postgres:
        server.run(f"CREATE TABLE {table} (key text)")
        server.run(f"COMMENT ON TABLE {table} IS '{mark}'")
    else:
        server.run(f"CREATE TABLE {table} (`key` INT) COMMENT = '{mark}'")
    refuse(server.url(query=f"table={table}"), Misconfigured, words)


def test_comment_lost_in_a_dump(server: Server) -> None:
    """A table of ours that lost its comment is still ours."""
    table = server.new_table()
    server.open(query=f"table={table}").setup()
    if server.is_postgres:
        server.run(f"COMMENT ON TABLE {table} IS NULL")
    else:
        server.run(f"ALTER TABLE {table} COMMENT = ''")
    assert server.open(query=f"table={table}").load("k").version is None


def test_read_only(server: Server) -> None:
    """A replica can be looked at, and says that it cannot be written."""
    table = server.new_table()
    server.open(query=f"table={table}").setup()
    user = server.new_user(f"SELECT, INSERT, UPDATE, DELETE ON {table}")
    if server.is_postgres:
        server.run(f"ALTER ROLE {user} SET default_transaction_read_only = on")
    else:
        server.run("SET GLOBAL read_only = 1")
    try:
        store = server.open(user=user, password="s3cret", query=f"table={table}")
        assert store.load("k").version is None
        with pytest.raises(StoreReadOnly, match="primary"):
            store.swap("k", None, Record(1))
        store.close()
    finally:
        if not server.is_postgres:
            server.run("SET GLOBAL read_only = 0")


def test_name_that_stands_for_another_server_now() -> None:
    """When the primary has changed, writes go to the new one as soon as the name leads there."""
    require(MariaDB)
    with MariaDB() as old, MariaDB() as new, Proxy(old.port) as name:
        primaries = [Server("mysql", old), Server("mysql", new)]
        for primary in primaries:
            primary.run("CREATE USER app IDENTIFIED BY 's3cret'")
            primary.run("GRANT ALL ON holdfast.* TO app")
            primary.open().setup()
        url = old.url(user="app", password="s3cret", port=str(name.port))
        with closing(open_store(url)) as store:
            store.swap("k", None, Record(1))
            name.lead_to(new.port)
            primaries[0].run("SET GLOBAL read_only = 1")
            with pytest.raises(StoreReadOnly):
                store.swap("l", None, Record(1))
            assert isinstance(store.swap("l", None, Record(1)), Swapped)
        assert primaries[1].run("SELECT `key` FROM holdfast_locks") == [("l",)]


@pytest.mark.parametrize(
    "query",
    ["table=a-b", "table=a;b", "schema=a.b", "wakeup=now", "pool_size=0", "timeout_s=x"],
)
def test_bad_options(query: str) -> None:
    """Options that make no sense are refused before anything is opened."""
    with pytest.raises(BadOption):
        open_store(f"postgresql://u:s3cret@localhost/db?{query}")


def test_bad_urls() -> None:
    """An address without a database, and an option that does not exist."""
    with pytest.raises(BadURL, match="names no database") as caught:
        open_store("mysql://u:s3cret@localhost")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(BadOption, match="no option colour"):
        open_store("mysql://u:s3cret@localhost/db", colour="red")


def test_other_spellings(server: Server) -> None:
    """SQLAlchemy's spelling of an address works too, and so do the short names."""
    schemes = {
        "postgresql": ["postgres", "postgresql+psycopg"],
        "mysql": ["mariadb", "mysql+pymysql"],
    }
    for scheme in schemes[server.kind]:
        with holdfast.connect(server.engine.url(scheme)) as locks:
            assert locks.facts.name == server.kind
            with locks.acquire(f"spelling/{scheme}"):
                pass
