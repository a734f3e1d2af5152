"""Debian's Prometheus, which scrapes a program of the test every second."""

from __future__ import annotations

import json
import shutil
from typing import Any, ClassVar
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.engines.base import Engine

CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: script
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus(Engine):
    """A server that scrapes one target, given as host and port."""

    packages: ClassVar[tuple[str, ...]] = ("prometheus",)
    start_within_s: ClassVar[float] = 60.0

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = target

    @classmethod
    def installed(cls) -> bool:
        return shutil.which("prometheus") is not None

    def prepare(self) -> None:
        (self.folder / "prometheus.yml").write_text(CONFIG.format(target=self._target))

    def command(self) -> list[str]:
        return [
            "prometheus", f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
        ]  # fmt: skip

    def answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def ask(self, path: str, **parameters: Any) -> Any:
        """The data of an answer of its API."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, query: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """The labels and values that a query returns at this time, or now."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        found = self.ask("query", query=query, **when)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]
