"""On a terminal: the spinner, and whose turn it is at the keyboard."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import HOLDFAST, PATIENCE_S, Program, until

ROOT = Path(__file__).parents[2]
WHO_IS_IN_FRONT = (
    "import os; tty = os.open('/dev/tty', os.O_RDWR); "
    "print('in front:', os.tcgetpgrp(tty) == os.getpgrp() == os.getpid())"
)
# Not sh: dash starts `sleep` with vfork, and one that is stopped or interrupted in the middle
# of that waits for the other.
SLEEPER = (
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "print('started', flush=True); time.sleep(60)"
)


class Screen:
    """A program at a terminal of its own, in a session of its own."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Any) -> None:
        self.keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            command,
            env=env | {"TERM": "xterm", "COLUMNS": "100"},
            cwd=cwd,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def shows(self, text: str) -> None:
        """Wait until this was written."""
        until(lambda: self._read() or text in self.text, lambda: f"{text!r} in {self.text!r}")
        self.text = self.text.partition(text)[2]

    def code(self) -> int:
        """Wait for its end."""
        until(lambda: self._read() or self.process.poll() is not None, "its end")
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.keyboard)

    def _read(self) -> bool:
        """Take in what was written; never true."""
        while select.select([self.keyboard], [], [], 0)[0]:
            try:
                data = os.read(self.keyboard, 65536)
            except OSError:  # the other end is closed
                return False
            if not data:
                return False
            self.text += data.decode(errors="replace")
        return False


@pytest.fixture
def shell(holdfast: Program) -> Iterator[Screen]:
    """An interactive shell, as people have it."""
    env = holdfast.env | {"PS1": "> ", "HF": " ".join(HOLDFAST), "HISTFILE": ""}
    env["SLOW"] = f"{sys.executable} {Path(__file__).with_name('slow.py')}"
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    screen = Screen(["bash", "--norc", "--noprofile", "-i"], env, holdfast.folder)
    screen.shows("> ")
    yield screen
    screen.close()


def test_spinner(holdfast: Program, shell: Screen) -> None:
    """While it waits, one line says who holds the lock, for how long, and since when."""
    with holdfast.locks() as locks:
        with locks.acquire("nightly", owner="someone"):
            shell.type("$HF run nightly -- echo got $((40 + 2))\n")
            shell.shows("'nightly': held by someone, free in ")
            shell.shows("unless renewed, waited ")
            shell.shows("waited 1.")
        shell.shows("got 42")


def test_command_is_in_front(shell: Screen) -> None:
    """The command's group has the terminal while it runs, and the shell has it afterwards."""
    shell.type(f'$HF run k -- python3 -c "{WHO_IS_IN_FRONT}"\n')
    shell.shows("in front: True")
    shell.type("read -p 'name? ' name; echo hello $name\n")
    shell.shows("name? ")
    shell.type("joe\n")
    shell.shows("hello joe")


def test_command_reads_the_keyboard(shell: Screen) -> None:
    """A command can ask a question, also when it stands in a pipeline."""
    ask = "sh -c 'echo ready; read x </dev/tty; echo answer \\$x'"
    for pipe in ("", " | cat"):
        shell.type(f'eval "$HF run k -- {ask}{pipe}"\n')
        shell.shows("ready\r\n")
        shell.type("yes\n")
        shell.shows("answer yes")
        shell.shows("> ")


def test_ctrl_c(shell: Screen) -> None:
    """Ctrl-C ends the command, with its code, and the loop around it too."""
    shell.type(f'for i in 1 2; do $HF run k -- python3 -c "{SLEEPER}"; done; echo no\n')
    shell.shows("started\r\n")
    shell.type("\x03")
    shell.shows("> ")
    shell.type("echo code $?\n")
    shell.shows("code 130")


def test_ctrl_z_and_back(shell: Screen, holdfast: Program) -> None:
    """Ctrl-Z gives the shell its turn; `fg` goes on, and within the ttl nothing is lost."""
    shell.type("$HF run k --ttl 20 -- sh -c 'echo ready; read x; echo answer $x'\n")
    shell.shows("ready\r\n")
    shell.type("\x1a")
    shell.shows("Stopped")
    shell.type("fg\n")
    shell.shows("run k")
    shell.type("yes\n")
    shell.shows("answer yes")
    shell.type("echo code $?\n")
    shell.shows("code 0")


@pytest.mark.parametrize("pipe", ["", " | cat"], ids=["alone", "piped"])
def test_ctrl_z_at_once(shell: Screen, pipe: str) -> None:
    """Ctrl-Z is not lost when the command tries to read before it has the terminal."""
    ask = "sh -c 'echo ready; read x </dev/tty; echo answer \\$x'"
    shell.type(f'eval "$SLOW run k -- {ask}{pipe}"\n')
    shell.shows("ready\r\n")
    shell.type("\x1a")
    shell.shows("Stopped")
    shell.type("fg\n")
    shell.shows("run k")
    shell.type("yes\n")
    shell.shows("answer yes")


def test_cannot_run_at_a_terminal(holdfast: Program, shell: Screen) -> None:
    """A command that cannot be started leaves the terminal to the script around it."""
    (holdfast.folder / "bad").write_text("#!/no/such/program\n")
    (holdfast.folder / "bad").chmod(0o755)
    shell.type("sh -c '$HF run k -- ./bad; read x; echo answer $x'\n")
    shell.shows("bad: No such file")
    shell.type("yes\n")
    shell.shows("answer yes")


def test_ctrl_z_for_too_long(shell: Screen, holdfast: Program) -> None:
    """Stopped for longer than the ttl: the command is ended before it does anything more."""
    shell.type(f'$HF run k --ttl 1 -- python3 -c "{SLEEPER}"\n')
    shell.shows("started\r\n")
    shell.type("\x1a")
    shell.shows("Stopped")
    with holdfast.locks() as locks:
        locks.acquire("k", timeout=10).release()
    shell.type("fg\n")
    shell.shows("lost the lease on 'k'")
    shell.type("echo code $?\n")
    shell.shows("code 76")


def test_no_shell_to_go_back_to(holdfast: Program) -> None:
    """With no shell around, as in a container, Ctrl-Z cannot leave the command stopped."""
    command = [*HOLDFAST, "run", "k", "--", "sh", "-c", "echo ready; read x; echo answer $x"]
    screen = Screen(command, holdfast.env, holdfast.folder)
    try:
        screen.shows("ready\r\n")
        screen.type("\x1a")
        screen.type("yes\n")
        screen.shows("answer yes")
        assert screen.code() == 0
    finally:
        screen.close()


def test_evict_asks(holdfast: Program, shell: Screen) -> None:
    """At a terminal it shows who would be thrown out, and asks."""
    with holdfast.locks() as locks:
        locks.acquire("k", owner="someone", keep=False)
        shell.type("$HF evict k\n")
        shell.shows("held by someone")
        shell.shows("[y/N]")
        shell.type("n\n")
        shell.shows("> ")
        assert not locks.show("k").free
        shell.type("$HF evict k\n")
        shell.shows("[y/N]")
        shell.type("y\n")
        shell.shows("evicted someone")
        assert locks.show("k").free


def test_watch_table(holdfast: Program, shell: Screen) -> None:
    """At a terminal the locks are a table that changes."""
    with holdfast.locks() as locks:
        shell.type("$HF watch -i 50ms\n")
        shell.shows("Held by")
        with locks.acquire("a-key", owner="someone"):
            shell.shows("a-key")
    shell.type("\x03")
    shell.shows("> ")
    shell.type("echo code $?\n")
    shell.shows("code 0")


@pytest.mark.parametrize("command", [["wait", "k"], ["watch"]], ids=lambda command: command[0])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_cursor_comes_back(holdfast: Program, command: list[str], signum: int) -> None:
    """Whatever signal ends them (`timeout 10 holdfast wait ...`), the terminal is as before."""
    with holdfast.locks() as locks, locks.acquire("k", ttl=60):
        screen = Screen([*HOLDFAST, *command], holdfast.env, holdfast.folder)
        try:
            screen.shows("\x1b[?25l")
            screen.process.send_signal(signum)
            code = screen.code()
            assert code == (0 if (command[0], signum) == ("watch", signal.SIGINT) else 128 + signum)
            screen.shows("\x1b[?25h")
        finally:
            screen.close()
