"""A Celery worker as a program of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.integrations.celery import app as tasks

ROOT = Path(__file__).parents[3]


class Worker:
    """`celery worker` in a process group of its own, stopped by its id."""

    def __init__(
        self, folder: Path, environment: dict[str, str], *, pool: str = "prefork",
        concurrency: int = 4, name: str = "worker", queue: str = "celery",
    ) -> None:  # fmt: skip
        self.log = folder / f"{name}.log"
        command = [
            sys.executable, "-m", "celery", "-A", tasks.__name__, "worker",
            "--pool", pool, "--concurrency", str(concurrency), "--loglevel", "INFO",
            "--hostname", f"{name}@test", "--queues", queue,
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The id of its main process."""
        return self._process.pid

    def wait_until_ready(self) -> Worker:
        """Block until it takes tasks."""
        ends_at = time.monotonic() + 60
        while " ready." not in self.output():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise AssertionError(f"the worker did not start:\n{self.output()}")
            time.sleep(0.05)
        return self

    def wait(self) -> int:
        """Block until it has ended; its exit code."""
        return self._process.wait(60)

    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End it and its children at once, as the kernel does when memory runs out."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> None:
        """Let it end as it should; then by force."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Worker:
        return self.wait_until_ready()

    def __exit__(self, *exc: Any) -> None:
        self.stop()
