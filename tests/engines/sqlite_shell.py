"""SQLite's own program, which is no server: it only has to be there."""

from __future__ import annotations

import shutil

from tests.engines.base import Engine


class SQLiteShell(Engine):
    """`sqlite3` on the command line."""

    packages = ("sqlite3",)

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("sqlite3") is not None

    def command(self) -> list[str]:
        return ["sqlite3"]

    def answers(self) -> bool:
        return self.installed()
