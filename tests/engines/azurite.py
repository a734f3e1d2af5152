"""Azurite, the Azure Blob service on this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import shutil
from email.utils import formatdate

from tests.engines.base import Engine, listens
from tests.engines.npm import NpmPackage

ACCOUNT = "devstoreaccount1"
# Azurite's published key: the same for everyone, and worth nothing anywhere else.
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class Azurite(Engine):
    """A service with one account, and no container until one is made."""

    packages = ("nodejs",)
    npm = (NpmPackage("azurite", "3.37.0"),)
    start_within_s = 100.0

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("node") is not None and cls.npm[0].installed

    @classmethod
    def lacks(cls) -> tuple[str, ...]:
        return () if shutil.which("node") else cls.packages

    def command(self) -> list[str]:
        return [
            "node", str(self.npm[0].folder / "dist/src/blob/main.js"),
            "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
            "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry",
        ]  # fmt: skip

    def answers(self) -> bool:
        return listens(self.port)

    @property
    def endpoint(self) -> str:
        """The address of its account."""
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def create_container(self, name: str) -> None:
        """Make a container; it may be there already."""
        date, version = formatdate(usegmt=True), "2021-08-06"
        signed = (
            "PUT\n\n\n\n\n\n\n\n\n\n\n\n"
            f"x-ms-date:{date}\nx-ms-version:{version}\n"
            f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        mac = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256)
        signature = base64.b64encode(mac).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        status = connection.getresponse().status
        connection.close()
        assert status in (201, 409), f"the container {name} was not made: {status}"
