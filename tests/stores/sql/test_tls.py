"""TLS to MySQL, through both faces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.contract import Entry
from holdfast.errors import Misconfigured
from holdfast.stores.registry import open_store
from tests.engines.base import require
from tests.engines.mariadb import MariaDB
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
