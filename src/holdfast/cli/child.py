"""The command that `run` protects: a process that leads a process group of its own.

Signals go to the group, so that the children of a shell get them too. The system does not give the
leader's id to another process while the group has members, even after the leader was reaped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from holdfast.cli import codes
from holdfast.cli.session import tell

_PR_SET_PDEATHSIG = 1


class CannotRun(Exception):
    """The command cannot be started; `code` is the exit code that a shell would use."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def check_command(name: str) -> None:
    """Raise now, rather than after a long wait for the lock, if there is no such command."""
    if _is_executable(name):
        return
    if os.sep in name and os.path.lexists(name):
        why = "it is a folder" if Path(name).is_dir() else "chmod +x, or name its interpreter first"
        raise CannotRun(f"{name}: cannot be executed: {why}", codes.NOT_EXECUTABLE)
    raise CannotRun(f"{name}: command not found", codes.NOT_FOUND)


def if_it_can_run(command: tuple[str, ...], work: Callable[[], int]) -> int:
    """Returns the exit code of the work that runs this command. If the command cannot be run, says
    so, and returns the code for that; before the work, if it is known by then."""
    try:
        check_command(command[0])
        return work()
    except CannotRun as exc:
        tell(str(exc))
        return exc.code


def _is_executable(name: str) -> bool:
    """Whether this names a program. `shutil.which` would do, and imports every kind of archive."""
    folders = [""] if os.sep in name else os.get_exec_path()
    paths = [Path(folder, name) for folder in folders if name]
    return any(os.access(path, os.X_OK) and not path.is_dir() for path in paths)


class Child:
    """A running command. Start it from the main thread: when that ends, so does the command."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        stdout: IO[bytes] | None = None,
        first: Callable[[], None] | None = None,  # it calls this between fork and exec
    ) -> None:
        calls = [call for call in (_die_with_parent(), first) if call is not None]
        try:
            self._process = subprocess.Popen(
                command, env=env, stdout=stdout, process_group=0, preexec_fn=_in_turn(calls)
            )
        except FileNotFoundError as exc:
            raise CannotRun(f"{command[0]}: {exc.strerror}", codes.NOT_FOUND) from exc
        except OSError as exc:
            raise CannotRun(f"{command[0]}: {exc.strerror}", codes.NOT_EXECUTABLE) from exc
        self.pid = self._process.pid
        self.signalled: int | None = None  # the signal that ended it
        self.code: int | None = None  # its exit code, once it has one

    def signal(self, signum: int) -> None:
        """Send a signal to the whole group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def poll(self) -> int | None:
        """Set `code` if the command has ended. Returns the signal that stopped it, if one did."""
        if self.code is not None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            return os.WSTOPSIG(status)
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # reaped: Popen need not look for it
        if code < 0:
            self.signalled = -code
        self.code = codes.SIGNALLED - code if code < 0 else code
        return None

    def gone(self) -> bool:
        """Whether no process of the group is left."""
        if self.code is None:
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def _in_turn(calls: list[Callable[[], None]]) -> Callable[[], None] | None:
    def call_all() -> None:
        for call in calls:
            call()

    return call_all if calls else None


def _die_with_parent() -> Callable[[], None] | None:
    """Returns what makes Linux send SIGTERM to the command when this process dies, even of
    `kill -9`. It runs between fork and exec, and only makes two calls that were looked up before.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    parent, sigterm = os.getpid(), int(signal.SIGTERM)

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, sigterm, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(codes.SIGNALLED + sigterm)

    return set_death_signal
