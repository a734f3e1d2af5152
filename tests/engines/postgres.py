"""PostgreSQL, and PgBouncer in front of it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tests.engines.base import Engine, free_port, listens, wait_until_stopped


def _programs() -> Path | None:
    """The newest server that Debian has installed."""
    homes = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((home.parent for home in homes), default=None)


def _owner() -> str | None:
    return "postgres" if os.geteuid() == 0 else None


class PostgreSQL(Engine):
    """A server with trust authentication for `postgres`, and passwords for other users."""

    packages = ("postgresql",)
    settings: ClassVar[tuple[str, ...]] = ()
    orderly = signal.SIGINT  # on SIGTERM it waits until all clients are gone

    def url(self, scheme: str = "postgresql", **parts: str) -> str:
        """Its address; `user`, `password`, `database` and `query` may be given."""
        user = parts.get("user", "postgres")
        if "password" in parts:
            user = f"{user}:{parts['password']}"
        query = f"?{parts['query']}" if "query" in parts else ""
        port = parts.get("port", str(self.port))
        return f"{scheme}://{user}@127.0.0.1:{port}/{parts.get('database', 'postgres')}{query}"

    @classmethod
    def installed(cls) -> bool:
        return _programs() is not None

    def command(self) -> list[str]:
        settings = [
            "listen_addresses=127.0.0.1", "fsync=off", f"unix_socket_directories={self.folder}",
            "max_connections=300", "shared_buffers=16MB", *self.settings,
        ]  # fmt: skip
        options = [word for setting in settings for word in ("-c", setting)]
        return [*self._program("postgres"), "-D", self._data, "-p", str(self.port), *options]

    def answers(self) -> bool:
        asked = [*self._program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def prepare(self) -> None:
        if self.user():
            shutil.chown(self.folder, "postgres", "postgres")
            self.folder.chmod(0o755)
        initdb = [*self._program("initdb"), "-D", self._data, "-U", "postgres", "-A", "trust",
                  "--no-sync", "-E", "UTF8", "--locale=C"]  # fmt: skip
        owner = self.user()
        subprocess.run(
            initdb, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, user=owner, group=owner
        )
        access = Path(self._data, "pg_hba.conf")
        access.write_text(
            "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )

    def user(self) -> str | None:
        return _owner()

    def pause(self) -> None:
        """Freeze the server's processes, each of which serves a connection."""
        for pid in self._signal_all(signal.SIGSTOP):
            wait_until_stopped(pid)

    def resume(self) -> None:
        """Let them go on."""
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """End them all at once: those left over would keep the server from coming back."""
        self._signal_all(signal.SIGKILL)
        super().kill()

    def _signal_all(self, how: signal.Signals) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        pids = [self.pid, *map(int, children)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        return pids

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _program(self, name: str) -> list[str]:
        programs = _programs()
        assert programs is not None
        return [str(programs / name)]


class PgBouncer(Engine):
    """The pooler in transaction mode in front of a server."""

    packages = ("pgbouncer",)

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self.port = free_port()
        self.server = server

    def url(self, query: str = "") -> str:
        """Its address."""
        return self.server.url(port=str(self.port), query=query)

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("pgbouncer") is not None

    def command(self) -> list[str]:
        return ["pgbouncer", str(self.folder / "pgbouncer.ini")]

    def answers(self) -> bool:
        return listens(self.port)

    def prepare(self) -> None:
        if self.user():
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        (self.folder / "users.txt").write_text('"postgres" ""\n')
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n"
            f"postgres = host=127.0.0.1 port={self.server.port} dbname=postgres user=postgres\n"
            f"[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self.folder}/users.txt\n"
            f"pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\n"
        )

    def user(self) -> str | None:
        return _owner()
