"""TLS to MySQL, through both faces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from holdfast.core.contract import Entry
from holdfast.errors import Misconfigured
from holdfast.stores.registry import open_store
from tests.engines.base import require
from tests.engines.mariadb import MariaDB
from tests.engines.shared import shared
from tests.engines.tls import new_certificate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificates are."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[MariaDB]:
    """A server that speaks nothing but TLS."""
    require(MariaDB)
    public, secret = new_certificate(folder)

    class Server(MariaDB):
        settings = (f"--ssl-cert={public}", f"--ssl-key={secret}", "--require-secure-transport=1")

        def answers(self) -> bool:
            return super().answers() or "ready for connections" in self.log()

    engine = Server()
    engine.start()
    yield engine
    engine.stop()


def load(url: str, face: str) -> Entry:
    """Look at a key, on a connection of one's own."""
    store = open_store(url)
    if face == "sync":
        try:
            return store.load("k")
        finally:
            store.close()

    async def look() -> Entry:
        of_the_loop = store.to_async()
        try:
            return await of_the_loop.load("k")
        finally:
            await of_the_loop.close()

    return asyncio.run(look())


@pytest.mark.parametrize("face", ["sync", "async"])
def test_certificate_that_is_trusted(server: MariaDB, folder: Path, face: str) -> None:
    """With the authority of the server's certificate the store works."""
    url = server.url(database="mysql", query=f"ssl_ca={folder}/server.pem&table=locks")
    assert load(url, face).now is not None


@pytest.mark.parametrize("face", ["sync", "async"])
def test_certificate_that_is_not_trusted(server: MariaDB, folder: Path, face: str) -> None:
    """That does not get better by trying again, and so it is not said to."""
    new_certificate(folder, "other")
    url = server.url(database="mysql", query=f"ssl_ca={folder}/other.pem&table=locks")
    with pytest.raises(Misconfigured, match="certificate"):
        load(url, face)


def test_certificate_that_is_not_there(folder: Path) -> None:
    """A file that cannot be read is told at once, by its name."""
    with pytest.raises(Misconfigured, match="nothing"):
        open_store(f"mysql://u@127.0.0.1:1/db?ssl_ca={folder}/nothing.pem")


@pytest.mark.parametrize("face", ["sync", "async"])
def test_server_without_tls(folder: Path, face: str) -> None:
    """Nothing is said in clear to a server that should speak TLS and does not."""
    new_certificate(folder, "wanted")
    url = shared(MariaDB).url(query=f"ssl_ca={folder}/wanted.pem")
    with pytest.raises(Misconfigured, match=r"TLS|SSL"):
        load(url, face)


def test_login_that_the_driver_does_not_know() -> None:
    """That does not get better by trying again either. (Here it is aiomysql that does not.)"""
    server = shared(MariaDB)
    root = create_engine(server.url("mysql+pymysql"), poolclass=NullPool)
    with root.connect() as connection:
        connection.execute(text("INSTALL SONAME 'auth_ed25519'"))
        try:
            connection.execute(text("CREATE USER ed IDENTIFIED VIA ed25519 USING PASSWORD('x')"))
            with pytest.raises(Misconfigured, match="ed25519"):
                load(server.url(user="ed", password="x"), "async")
        finally:
            connection.execute(text("DROP USER IF EXISTS ed"))
            connection.execute(text("UNINSTALL SONAME 'auth_ed25519'"))
