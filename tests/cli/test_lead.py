"""`holdfast lead KEY -- COMMAND…`: one copy of a program, on one machine of many."""

from __future__ import annotations

import signal

from holdfast.cli import codes
from tests.cli.program import Program, Started, alive, until

WORK = "echo leading $$ $HOLDFAST_FENCE; exec sleep 60"


def candidate(holdfast: Program, script: str = WORK, ttl: str = "20") -> Started:
    """One machine's `holdfast lead`."""
    return holdfast.start("lead", "k", "--ttl", ttl, "--", "sh", "-c", script)


def pid_of(started: Started) -> int:
    """The command's process."""
    return int(started.out.split()[1])


def test_it_exits_with_the_code_of_its_command(holdfast: Program) -> None:
    """A command that ends by itself ends its leader, and frees the lock."""
    done = holdfast("lead", "k", "--", "sh", "-c", "echo $HOLDFAST_KEY; exit 7")
    assert (done.returncode, done.stdout) == (7, "k\n")
    with holdfast.locks() as locks:
        assert locks.show("k").free


def test_one_at_a_time_and_the_next_when_it_is_stopped(holdfast: Program) -> None:
    """SIGTERM ends the command and hands the lock to the next candidate at once."""
    first = candidate(holdfast)
    first.says("leading")
    second = candidate(holdfast)
    with holdfast.locks() as locks:
        until(lambda: locks.show("k").waiters)
    assert "leading" not in second.out
    first.send(signal.SIGTERM)
    assert first.code() == codes.SIGNALLED + signal.SIGTERM
    second.says("leading")
    assert int(second.out.split()[2]) > int(first.out.split()[2])


def test_a_machine_that_dies_is_followed(holdfast: Program) -> None:
    """After kill -9 the next one leads when the ttl is over."""
    first = candidate(holdfast, ttl="1")
    first.says("leading")
    second = candidate(holdfast)
    with holdfast.locks() as locks:
        until(lambda: locks.show("k").waiters)
    first.send(signal.SIGKILL)
    second.says("leading")


def test_a_lost_lease_stops_the_command_and_it_campaigns_again(holdfast: Program) -> None:
    """The old command is gone before the next term begins."""
    leader = candidate(holdfast, ttl="2")
    leader.says("leading")
    command = pid_of(leader)
    assert holdfast("evict", "k", "--yes").returncode == 0
    until(lambda: leader.out.count("leading") == 2)
    assert not alive(command)
    assert "lost the lease on 'k'" in leader.err
    leader.send(signal.SIGTERM)
    assert leader.code() == codes.SIGNALLED + signal.SIGTERM


def test_a_candidate_that_is_stopped_leaves_its_place(holdfast: Program) -> None:
    """Its code is that of the signal, and nobody waits for it."""
    with holdfast.locks() as locks, locks.acquire("k"):
        waiting = candidate(holdfast)
        until(lambda: locks.show("k").waiters)
        waiting.send(signal.SIGTERM)
        assert waiting.code() == codes.SIGNALLED + signal.SIGTERM
        assert not locks.show("k").waiters


def test_without_a_command(holdfast: Program) -> None:
    """It says how to call it."""
    done = holdfast("lead", "k")
    assert done.returncode == codes.USAGE
    assert "holdfast lead KEY -- COMMAND" in done.stderr
