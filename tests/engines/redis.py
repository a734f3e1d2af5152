"""Redis."""

from __future__ import annotations

import shutil
from typing import ClassVar

from tests.engines.base import Engine, listens


class RedisServer(Engine):
    """One Redis without persistence."""

    packages: ClassVar[tuple[str, ...]] = ("redis-server",)

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("redis-server") is not None

    def command(self) -> list[str]:
        return [
            "redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(self.folder), "--save", "", "--appendonly", "no",
        ]  # fmt: skip

    def answers(self) -> bool:
        return listens(self.port)

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"
