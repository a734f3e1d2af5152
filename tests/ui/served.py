"""`holdfast ui` in a process of its own, and questions to it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PATIENCE_S = 30.0


class Served:
    """A page that is being served."""

    def __init__(self, address: str, token: str, pid: int = 0) -> None:
        self.address = address  # with a slash at its end
        self.token = token
        self.pid = pid

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.address.rstrip("/").rsplit(":", 1)[1])

    @property
    def with_token(self) -> str:
        """The address that is printed."""
        return f"{self.address}#token={self.token}"

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """The code, headers and content of an answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.address + path, data, headers or {})
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), _content(answer.read())
        except HTTPError as refused:
            with refused:
                return refused.code, dict(refused.headers), _content(refused.read())

    def get(self, path: str) -> Any:
        """What it says."""
        code, _, content = self.ask(path)
        assert code == 200, content
        return content

    def until(self, path: str, true: Any) -> Any:
        """Ask until the answer is as it should be."""
        ends_at = time.monotonic() + PATIENCE_S
        while not true(answer := self.get(path)):
            assert time.monotonic() < ends_at, answer
            time.sleep(0.05)
        return answer

    def lock(self, key: str, true: Any = bool) -> Any:
        """A lock, as soon as it is there and as it should be."""
        found = self.until(
            "api/locks",
            lambda told: any(lock["key"] == key and true(lock) for lock in told["locks"]),
        )
        return next(lock for lock in found["locks"] if lock["key"] == key)


def _content(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


@contextlib.contextmanager
def served(url: str, *arguments: str, interval: str | None = "100ms") -> Iterator[Served]:
    """Serve the page of a store. Without an interval, it looks as often as it usually does."""
    command = [
        sys.executable, "-m", "holdfast", "--url", url, "ui", "--port", "0",
        *(("-i", interval) if interval else ()), *arguments,
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log)
        try:
            yield _found(process, log)
        finally:
            process.terminate()
            process.wait(30)


def _found(process: subprocess.Popen[bytes], log: Any) -> Served:
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at and process.poll() is None:
        log.seek(0)
        found = re.search(r"the page is at (http://\S+?/)(?:#token=(\S+))?\s", log.read())
        if found:
            return _answering(Served(found[1], found[2] or "", process.pid))
        time.sleep(0.05)
    log.seek(0)
    raise AssertionError(log.read())


def _answering(page: Served) -> Served:
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError):
            page.ask("")
            return page
        time.sleep(0.05)
    raise AssertionError("the page does not answer")
