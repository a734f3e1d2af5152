"""MariaDB."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import ClassVar

from tests.engines.base import Engine


class MariaDB(Engine):
    """A server whose `root` has no password, with a database `holdfast`."""

    packages = ("mariadb-server",)
    settings: ClassVar[tuple[str, ...]] = ()

    def url(self, scheme: str = "mysql", **parts: str) -> str:
        """Its address; `user`, `password`, `database` and `query` may be given."""
        user = parts.get("user", "root")
        if "password" in parts:
            user = f"{user}:{parts['password']}"
        query = f"?{parts['query']}" if "query" in parts else ""
        port = parts.get("port", str(self.port))
        return f"{scheme}://{user}@127.0.0.1:{port}/{parts.get('database', 'holdfast')}{query}"

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("mariadbd") is not None

    def command(self) -> list[str]:
        return [
            "mariadbd", "--no-defaults", *self._as_root(), f"--datadir={self.folder}/data",
            f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.folder}/s",
            f"--pid-file={self.folder}/pid", "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=32M", "--max-connections=300", "--skip-name-resolve",
            *self.settings,
        ]  # fmt: skip

    def answers(self) -> bool:
        asked = [
            "mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root",
            "-e", "CREATE DATABASE IF NOT EXISTS holdfast",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        return subprocess.run(asked, check=False, stdout=quiet, stderr=quiet).returncode == 0

    def prepare(self) -> None:
        install = [
            "mariadb-install-db", "--no-defaults", *self._as_root(),
            f"--datadir={self.folder}/data", "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]  # fmt: skip
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _as_root(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []
