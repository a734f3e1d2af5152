"""Starting, pausing, killing and stopping a server process by its id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import pytest

from tests.engines.npm import NpmPackage


class Engine(ABC):
    """One server. Use it as a context manager, or `start()` and `stop()`."""

    packages: ClassVar[tuple[str, ...]] = ()  # Debian's names
    npm: ClassVar[tuple[NpmPackage, ...]] = ()
    start_within_s: ClassVar[float] = 30.0
    orderly: ClassVar[signal.Signals] = signal.SIGTERM  # what it ends on in good order

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-engine-"))
        self._process: subprocess.Popen[bytes] | None = None

    # --- what each engine says of itself ----------------------------------------------------

    @classmethod
    @abstractmethod
    def installed(cls) -> bool:
        """Whether its programs are on this machine."""

    @classmethod
    def lacks(cls) -> tuple[str, ...]:
        """Debian's packages that have to be installed for it."""
        return () if cls.installed() else cls.packages

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server can be used now."""

    def prepare(self) -> None:
        """Make its data folder, before the first start."""

    def environment(self) -> dict[str, str]:
        """Its environment."""
        return dict(os.environ)

    def user(self) -> str | None:
        """The user that it must run as when we are root."""
        return None

    # --- its life ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it (again, on the same data and port) and wait until it answers."""
        if self._process is None:
            self.prepare()
        log = (self.folder / "engine.log").open("ab")
        user = self.user() if os.geteuid() == 0 else None
        self._process = subprocess.Popen(
            self.command(), cwd=self.folder, env=self.environment(),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user, group=user,
        )  # fmt: skip
        log.close()
        self._wait_until_it_answers()

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, as in a crash."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """End it in good order; it can be started again."""
        self._end(self.orderly)

    def restart(self) -> None:
        """Crash and come back."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """End it for good and remove its data."""
        if self._process is not None:
            self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def log(self) -> str:
        """What it has printed."""
        return (self.folder / "engine.log").read_text(errors="replace")[-4000:]

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
        self._process.wait(20)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        ends_at = time.monotonic() + self.start_within_s
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"{type(self).__name__} did not start:\n{self.log()}")
            time.sleep(0.02)


def wait_until_stopped(pid: int) -> None:
    """Wait until a process that was sent SIGSTOP stands still. On a busy machine one of its threads
    may answer for a while longer."""
    ends_at = time.monotonic() + 20
    tasks = Path(f"/proc/{pid}/task")
    while tasks.exists() and not all(map(_is_stopped, tasks.glob("*/stat"))):
        assert time.monotonic() < ends_at, f"process {pid} does not stop"
        time.sleep(0.001)


def _is_stopped(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:  # it has ended meanwhile
        return True


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def require(engine: type[Engine]) -> None:
    """A missing engine is a skip on a laptop, and a failure in CI."""
    if engine.installed():
        return
    message = f"{engine.__name__} is missing: python -m tests.engines installs it"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
