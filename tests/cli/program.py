"""Runs `holdfast` as people do: in a process of its own, against an SQLite file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.api.locks import Locks, connect

HOLDFAST = [sys.executable, "-m", "holdfast"]
PATIENCE_S = 15.0


def until(true: Callable[[], Any], what: Callable[[], str] | str = "it") -> Any:
    """Poll until something is true; its value."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (value := true()):
        if time.monotonic() > ends_at:
            raise AssertionError(f"{what if isinstance(what, str) else what()} did not happen")
        time.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Started:
    """A `holdfast` that runs. Its output goes to files, so that it can be read meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def out_bytes(self) -> bytes:
        return self._out.read_bytes()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def code(self) -> int:
        """Wait for its end."""
        return self.process.wait(PATIENCE_S)

    def says(self, text: str) -> None:
        """Wait until it has written this."""
        until(
            lambda: text in self.out + self.err,
            lambda: f"{text!r} in {self.out + self.err!r}",
        )


class Program:
    """The `holdfast` command with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "locks.db"
        self.url = f"sqlite://{self.file}"
        ours = {name for name in os.environ if name.startswith("HOLDFAST_")}
        self.env = {name: value for name, value in os.environ.items() if name not in ours}
        self.env |= {"HOLDFAST_URL": self.url, "XDG_STATE_HOME": str(folder / "state")}
        self._started: list[Started] = []

    def __call__(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [*HOLDFAST, *args],
            env=self.env | env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
        )

    def start(self, *args: str, prefix: tuple[str, ...] = (), **env: str) -> Started:
        """Start it, and see to its end."""
        number = len(self._started)
        out, err = self.folder / f"out{number}", self.folder / f"err{number}"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*prefix, *HOLDFAST, *args],
                env=self.env | env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        self._started.append(Started(process, out, err))
        return self._started[-1]

    def json(self, *args: str) -> list[Any]:
        """The lines of a listing."""
        done = self(*args, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def locks(self) -> Locks:
        """The same store from here."""
        return connect(self.url)

    def end_all(self) -> None:
        """End what still runs, each by its own id."""
        for started in self._started:
            if started.process.poll() is None:
                started.send(signal.SIGCONT)
                started.send(signal.SIGTERM)
                try:
                    started.process.wait(3)
                except subprocess.TimeoutExpired:
                    started.process.kill()
                    started.process.wait()
