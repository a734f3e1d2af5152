"""When the lease is lost, the command is stopped: its whole group, first kindly, then not."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from holdfast.cli import codes
from tests.cli.program import Program, Started, alive, until

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="a feature of Linux")


def start(holdfast: Program, script: str, *options: str, ttl: str = "1") -> Started:
    """A shell script under the lock `k`; it says `ready` when it is."""
    started = holdfast.start("run", "k", "--ttl", ttl, *options, "--", "sh", "-c", script)
    started.says("ready")
    return started


def test_stopped_for_longer_than_the_ttl(holdfast: Program) -> None:
    """After `kill -STOP` past its ttl and `-CONT`, the first stops its command at once."""
    first = start(holdfast, "echo $$ $HOLDFAST_FENCE ready; exec sleep 60")
    command, fence = map(int, first.out.split()[:2])
    first.send(signal.SIGSTOP)
    second = holdfast("run", "k", "--quiet", "--", "sh", "-c", "echo $HOLDFAST_FENCE")
    assert int(second.stdout) > fence
    assert alive(command)
    first.send(signal.SIGCONT)
    assert first.code() == codes.LOST
    assert not alive(command)
    assert "lost the lease on 'k'" in first.err


def test_second_keeps_its_lock_when_the_first_wakes(holdfast: Program) -> None:
    """The first, when it wakes up, does not free what is the second's by now."""
    first = start(holdfast, "echo ready; exec sleep 60")
    first.send(signal.SIGSTOP)
    with holdfast.locks() as locks, locks.acquire("k", timeout=10) as lease:
        first.send(signal.SIGCONT)
        assert first.code() == codes.LOST
        lease.renew()


def test_group_is_terminated_then_killed(holdfast: Program) -> None:
    """SIGTERM reaches the whole group; who ignores it gets SIGKILL after the grace time."""
    deaf = "trap '' TERM; echo $$ deaf; while :; do sleep 0.1; done"
    script = f"(sh -c \"{deaf}\") & trap 'echo heard; exit 3' TERM; echo ready; wait; sleep 60"
    started = start(holdfast, script, "--grace", "300ms")
    started.says("deaf")
    grandchild = next(int(line.split()[0]) for line in started.out.splitlines() if "deaf" in line)
    lost_at = time.monotonic()
    assert holdfast("evict", "k", "--yes").returncode == 0
    assert started.code() == codes.LOST
    assert time.monotonic() - lost_at > 0.3
    assert "heard" in started.out
    assert "did not stop within 0.3 s" in started.err
    until(lambda: not alive(grandchild), "the end of the grandchild")


def test_stopped_command_hears_it_too(holdfast: Program) -> None:
    """A command that was stopped is woken to hear that it must end."""
    started = start(holdfast, "echo $$ ready; exec sleep 60")
    os.kill(int(started.out.split()[0]), signal.SIGSTOP)
    holdfast("evict", "k", "--yes")
    assert started.code() == codes.LOST
    assert "killing" not in started.err


def test_it_says_who_evicted_it_and_why(holdfast: Program) -> None:
    """Whoever looks at the output of a job that was stopped learns whom to ask."""
    started = start(holdfast, "echo ready; exec sleep 60")
    holdfast("evict", "k", "--yes", "--reason", "it hung", "--operator", "bob")
    assert started.code() == codes.LOST
    assert "lost the lease on 'k': it was evicted by bob: it hung" in started.err


def test_max_hold(holdfast: Program) -> None:
    """After `--max-hold` the lease is not renewed any more, and the command is stopped."""
    started = start(holdfast, "echo ready; exec sleep 60", "--max-hold", "500ms")
    assert started.code() == codes.LOST


def test_store_that_vanishes(holdfast: Program) -> None:
    """Without its store the lease runs out; that is told before and after."""
    started = start(holdfast, "echo ready; exec sleep 60")
    holdfast.file.rename(holdfast.folder / "gone.db")
    assert started.code() == codes.LOST
    assert "in danger" in started.err
    assert "lost the lease" in started.err


def test_loss_that_shows_at_the_end(holdfast: Program) -> None:
    """A command that ends well after its lock was evicted was not protected to its end."""
    script = "echo ready; until [ -e go ]; do sleep 0.01; done; exit 0"
    started = start(holdfast, script, ttl="60")
    holdfast("evict", "k", "--yes")
    (holdfast.folder / "go").touch()
    assert started.code() == codes.LOST
    assert "before the command ended (code 0)" in started.err


@linux_only
def test_command_does_not_survive_a_kill(holdfast: Program) -> None:
    """`kill -9` on Holdfast ends the command too."""
    started = start(holdfast, "echo $$ ready; exec sleep 60")
    command = int(started.out.split()[0])
    started.send(signal.SIGKILL)
    until(lambda: not alive(command), "the end of the command")
