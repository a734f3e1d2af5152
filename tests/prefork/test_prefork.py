"""A client at module level works in pools of processes and under servers that fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.base import free_port
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "redis"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The store in the environment of a program, and that it uses the client before it forks."""
    url = f"sqlite://{tmp_path}/locks.db" if request.param == "sqlite" else shared(RedisServer).url
    return {**os.environ, "HOLDFAST_URL": url, "TEST_USED": "yes"}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools(method: str, environment: dict[str, str]) -> None:
    """ProcessPoolExecutor and multiprocessing.Pool run guarded functions, however they start."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.prefork.pools"]
    ran = subprocess.run(
        [*command, method],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.stdout == "24 jobs\n", ran.stderr


def gunicorn(port: int) -> list[str]:
    """Returns the command of a server that loads the application before it forks its workers."""
    return [
        sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--threads", "2",
        "--bind", f"127.0.0.1:{port}", "--timeout", "120", "tests.prefork.jobs:application",
    ]  # fmt: skip


def uwsgi(port: int) -> list[str]:
    """The same for uWSGI, with the options that `docs/howto.md` asks for."""
    return [
        str(Path(sys.executable).with_name("uwsgi")), "--master", "--processes", "2",
        "--enable-threads", "--py-call-uwsgi-fork-hooks", "--die-on-term",
        "--http-socket", f"127.0.0.1:{port}",
        "--module", "tests.prefork.jobs:application", "--home", sys.prefix,
    ]  # fmt: skip


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """A server, while the block runs."""
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def fetch(url: str) -> str:
    """Returns the body at an address, or nothing if nobody is there."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.parametrize("command", [gunicorn, uwsgi])
@pytest.mark.parametrize("path", ["guarded", "lazily"])
def test_servers_that_fork(
    command: Callable[[int], list[str]], path: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Every worker has a client of its own."""
    port = free_port()
    with started(command(port), environment, tmp_path / "log"):
        url = f"http://127.0.0.1:{port}/{path}"
        until(lambda: fetch(url), 60)
        served: set[str] = set()
        with ThreadPoolExecutor(8) as clients:
            until(lambda: served.update(clients.map(fetch, [url] * 8)) or len(served) == 2, 60)  # type: ignore[func-returns-value]
    assert all(line.split()[1].endswith(f":{line.split()[0]}") for line in served), served
    assert "Traceback" not in (tmp_path / "log").read_text()
