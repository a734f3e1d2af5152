"""Debian's Chromium, without a window, for the tests of the page."""

from __future__ import annotations

import shutil
from typing import ClassVar
from urllib.error import URLError
from urllib.request import urlopen

from tests.engines.base import Engine


class Chromium(Engine):
    """A browser that is driven through its debugging port, by Playwright."""

    packages: ClassVar[tuple[str, ...]] = ("chromium", "fonts-dejavu-core")
    start_within_s: ClassVar[float] = 60.0

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("chromium") is not None

    def command(self) -> list[str]:
        return [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking",
            f"--remote-debugging-port={self.port}", f"--user-data-dir={self.folder / 'profile'}",
            "about:blank",
        ]  # fmt: skip

    def answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/json/version", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    @property
    def url(self) -> str:
        """Where it is driven from."""
        return f"http://127.0.0.1:{self.port}"
