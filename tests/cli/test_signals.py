"""Signals to `holdfast run` reach the command and its children."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast import AcquireTimeout
from tests.cli.program import Program, until

NAMES = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH")
# Python and not sh: a shell runs its traps only between two commands.
LISTENER = """
import os, signal, sys, time
def say(what):
    os.write(1, f"{sys.argv[1]} {what}\\n".encode())  # in one piece: two write here
for name in sys.argv[2].split():
    signal.signal(getattr(signal, "SIG" + name), lambda n, _: say(n))
child = len(sys.argv) == 3 and os.spawnlp(
    os.P_NOWAIT, sys.executable, sys.executable, "-c", sys.orig_argv[2], "child", sys.argv[2], "x"
)
say("ready")
while True:
    time.sleep(0.02)  # not pause(): a signal just before it would be heard only with the next
"""


def test_signals_reach_the_whole_group(holdfast: Program) -> None:
    """Every signal is passed on once, to the command and to its child."""
    command = ("python3", "-c", LISTENER, "parent", " ".join(NAMES))
    started = holdfast.start("run", "k", "--", *command)
    started.says("parent ready")
    started.says("child ready")
    for name in NAMES:
        signum = getattr(signal, f"SIG{name}")
        started.send(signum)
        started.says(f"parent {signum:d}\n")
        started.says(f"child {signum:d}\n")
    started.send(signal.SIGTERM)
    assert started.code() == 143
    assert len(started.out.splitlines()) == 2 * (len(NAMES) + 1)


def state(pid: int) -> str:
    """The state of a process: R, S, T…"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_pause_and_resume(holdfast: Program) -> None:
    """A command that somebody stops keeps its lease; SIGCONT to Holdfast wakes it."""
    args = ("run", "k", "--ttl", "1", "--", "sh", "-c", "echo $$ ready; exec sleep 60")
    started = holdfast.start(*args)
    started.says("ready")
    command = int(started.out.split()[0])
    os.kill(command, signal.SIGSTOP)
    until(lambda: state(command) == "T")
    with holdfast.locks() as locks:
        # Nobody gets it, though its ttl passes several times over.
        with pytest.raises(AcquireTimeout):
            locks.acquire("k", timeout=2)
    started.send(signal.SIGCONT)
    until(lambda: state(command) != "T")
    started.send(signal.SIGTERM)
    assert started.code() == 143


def test_stop_request_without_a_terminal(holdfast: Program) -> None:
    """SIGTSTP is passed on; Holdfast itself goes on and keeps the lease."""
    args = ("run", "k", "--", "sh", "-c", "echo $$ ready; exec sleep 60")
    started = holdfast.start(*args, prefix=("setsid",))
    started.says("ready")
    command = int(started.out.split()[0])
    started.send(signal.SIGTSTP)
    until(lambda: state(command) == "T")
    assert state(started.pid) != "T"
    started.send(signal.SIGCONT)
    until(lambda: state(command) != "T")
    started.send(signal.SIGTERM)
    assert started.code() == 143
