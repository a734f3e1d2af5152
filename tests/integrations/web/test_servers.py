"""The applications on the pages, under the commands on the pages: real servers, two workers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.engines.base import free_port
from tests.helpers import until
from tests.pages import code

FASTAPI = "frameworks/fastapi.md"
SERVERS = "frameworks/gunicorn-and-uvicorn.md"
COMMANDS = code(SERVERS, "Commands that our tests run", "sh")
ASGI, WSGI = (block.splitlines() for block in COMMANDS)

# What a reader of the pages has: it takes a moment, and notes who is at work in a diary.
REPORTS = """
import asyncio, json, os, time

def note(what):
    with open("diary", "a") as diary:
        diary.write(f"{what} {os.getpid()}\\n")

def make_report_now(month, fence):
    note("begin")
    time.sleep(0.05)
    note("end")
    return json.dumps({"by": os.getpid(), "fence": fence}).encode()

async def make_report(month, fence):
    note("begin")
    await asyncio.sleep(0.05)
    note("end")
    return {"by": os.getpid(), "fence": fence}

async def poll(lease):
    note("lead")
    await asyncio.sleep(3600)
"""


@contextmanager
def serving(command: str, folder: Path, **files: str) -> Iterator[str]:
    """Run a command of a page in a folder with these modules. Yields the server's address."""
    for name, text in {"reports": REPORTS, **files}.items():
        (folder / f"{name}.py").write_text(text)
    program, *arguments = shlex.split(command)
    port = free_port()
    where = ["--port", str(port)] if program == "uvicorn" else ["--bind", f"127.0.0.1:{port}"]
    environment = {**os.environ, "HOLDFAST_URL": f"sqlite://{folder}/locks.db"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", program, *arguments, *where],
            cwd=folder, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        until(lambda: post(address)[0] != 0, 60)
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def post(address: str) -> tuple[int, Any]:
    """Send a request with nothing in it. Returns its status and body; 0 if nobody is there."""
    request = urllib.request.Request(address, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Retry-After"]
    except OSError:
        return 0, None


def check_workers(address: str, folder: Path) -> None:
    """Both workers make reports, one at a time, and who comes second is told to come again."""
    url = f"{address}/reports/may"
    served: Counter[Any] = Counter()
    workers: set[int] = set()

    def ask(_: int) -> None:
        status, body = post(url)
        served[status] += 1
        if status == 200:
            workers.add(body["by"])
        else:
            assert (status, body) == (409, "1")

    def enough() -> bool:
        list(clients.map(ask, range(8)))
        return len(workers) == 2 and served[409] > 0

    with ThreadPoolExecutor(8) as clients:
        until(enough, 60)
    diary = (folder / "diary").read_text().split("\n")[:-1]
    for begin, end in zip(diary[::2], diary[1::2], strict=True):
        assert begin.startswith("begin")
        assert end == begin.replace("begin", "end")
    assert "Traceback" not in (folder / "log").read_text()


@pytest.mark.parametrize("command", ASGI)
def test_asgi_servers(command: str, tmp_path: Path) -> None:
    """The first example of FastAPI's page, with two workers."""
    app = "\n".join(code(FASTAPI, "Example"))
    with serving(command, tmp_path, app=app) as address:
        check_workers(address, tmp_path)


@pytest.mark.parametrize("command", WSGI)
def test_wsgi_servers(command: str, tmp_path: Path) -> None:
    """A client at module level, before the fork or after it."""
    (wsgi,) = code(SERVERS, "Commands that our tests run")
    with serving(command, tmp_path, wsgi=wsgi) as address:
        check_workers(address, tmp_path)


def test_one_worker_leads(tmp_path: Path) -> None:
    """The loop on FastAPI's page runs in one of two workers, and in the other one when it dies."""
    (app,) = code(FASTAPI, "A loop that runs in one worker only")
    command = "uvicorn app:app --workers 2 --timeout-worker-healthcheck 60"
    diary = tmp_path / "diary"

    def leaders() -> list[int]:
        return [int(pid) for pid in re.findall(r"lead (\d+)", diary.read_text())]

    with serving(command, tmp_path, app=app):
        until(lambda: diary.exists() and leaders(), 60)
        url = f"sqlite://{tmp_path}/locks.db"
        with holdfast.connect(url) as locks:
            until(lambda: locks.show("poller").waiters, 60)
            os.kill(leaders()[0], signal.SIGKILL)
            locks.evict("poller", reason="the test does not wait for the ttl")
        until(lambda: len(leaders()) == 2, 60)
        assert len(set(leaders())) == 2
