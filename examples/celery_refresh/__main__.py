"""`python -m examples.celery_refresh`: a Redis if none is given, a worker, and the story."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program while the block runs; then it is asked to end, by its id."""
    process = subprocess.Popen(command, cwd=ROOT, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def start_redis(stack: ExitStack, folder: str) -> str:
    """The URL of the Redis that was given, or of a new one."""
    if "REDIS_URL" in os.environ:
        return os.environ["REDIS_URL"]
    if shutil.which("redis-server") is None:
        sys.exit("Install redis-server, or set REDIS_URL.")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    stack.enter_context(running([*command, "--save", ""], stdout=subprocess.DEVNULL))
    wait_for(port)
    return f"redis://127.0.0.1:{port}/0"


def wait_for(port: int) -> None:
    """Until somebody listens there."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit("redis-server did not start.")


def start_worker(stack: ExitStack) -> None:
    """Three processes, as on a small machine."""
    app = "examples.celery_refresh.tasks"
    command = [sys.executable, "-m", "celery", "--quiet", "--app", app, "worker"]
    quietly = ["--concurrency", "3", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    stack.enter_context(running([*command, *quietly]))


def main() -> None:
    """Everything in a folder that is gone afterwards."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["REDIS_URL"] = start_redis(stack, folder)
        os.environ["HOLDFAST_URL"] = f"sqlite://{folder}/locks.db"
        os.environ["CACHE_FILE"] = f"{folder}/cache.db"
        start_worker(stack)
        story = [sys.executable, "-m", "examples.celery_refresh.story"]
        subprocess.run(story, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
