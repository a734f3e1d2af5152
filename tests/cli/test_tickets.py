"""`--join` and `--take`: go on with somebody else's lease."""

from __future__ import annotations

import json
import sys

import pytest

from holdfast import AcquireTimeout
from holdfast.cli import codes
from tests.cli.program import HOLDFAST, Program

INNER = " ".join(HOLDFAST)


def test_join_from_the_environment(holdfast: Program) -> None:
    """A command can go on under the lease of the `holdfast run` around it."""
    inner = f'{INNER} run --join "$HOLDFAST_TICKET" -- sh -c "echo \\$HOLDFAST_KEY"'
    done = holdfast("run", "k", "--", "sh", "-c", f"{inner}; {INNER} ls --json")
    key, listed = done.stdout.splitlines()
    assert (done.returncode, key, done.stderr) == (0, "k", "")
    assert len(json.loads(listed)["holders"]) == 1


def test_an_empty_ticket_is_none(holdfast: Program) -> None:
    """It is refused: whoever passes one on has lost it, and the command must not run by itself."""
    done = holdfast("run", "k", "--", "echo", "never", HOLDFAST_RUN_JOIN="")
    assert (done.returncode, done.stdout) == (codes.USAGE, "")
    assert "HOLDFAST_RUN_JOIN is empty" in done.stderr


def test_join_keeps_it_alive(holdfast: Program) -> None:
    """The one who joined keeps the lease when its first holder is gone, and does not free it."""
    wait = "echo ready; until [ -e go ]; do sleep 0.02; done"
    with holdfast.locks() as first:
        lease = first.acquire("k", ttl=2)
        joined = holdfast.start("run", "k", "--join", lease.ticket, "--", "sh", "-c", wait)
        joined.says("ready")
    with holdfast.locks() as locks:
        with pytest.raises(AcquireTimeout):
            locks.acquire("k", timeout=3)
        (holdfast.folder / "go").touch()
        assert joined.code() == 0
        assert locks.show("k").holders[0].fence == lease.fence


def test_take(holdfast: Program) -> None:
    """The one who takes is the holder, with a new fence; the ticket is good only once."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k")
        ticket = lease.hand_over()
        args = ("run", "--take", ticket, "--owner", "next", "--", "sh", "-c")
        done = holdfast(*args, "echo $HOLDFAST_KEY $HOLDFAST_FENCE")
        key, fence = done.stdout.split()
        assert (done.returncode, key) == (0, "k")
        assert int(fence) > lease.fence
        again = holdfast(*args, "echo ran")
        assert (again.returncode, again.stdout) == (codes.LOST, "")
        assert again.stderr.count("\n") == 1
        assert ticket not in again.stderr


def test_ticket_from_a_variable_is_not_passed_on(holdfast: Program) -> None:
    """A ticket in the environment is for this run, and not for those inside of it."""
    with holdfast.locks() as locks:
        ticket = locks.acquire("k").hand_over()
        inner = f"{INNER} run other -- sh -c 'echo $HOLDFAST_KEY'"
        done = holdfast("run", "--", "sh", "-c", inner, HOLDFAST_RUN_TAKE=ticket)
        assert done.stdout == "other\n", done.stderr


def test_ticket_that_is_gone(holdfast: Program) -> None:
    """A ticket for a lease that was released, or lost to another, starts no program; the
    message says who has the lock instead."""
    with holdfast.locks() as locks:
        with locks.acquire("k") as lease:
            ticket = lease.ticket
        _starts_nothing(holdfast, ticket, "nobody holds it now")
        with locks.acquire("k", owner="another"):
            _starts_nothing(holdfast, ticket, "it is held by another now")


def _starts_nothing(holdfast: Program, ticket: str, who: str) -> None:
    done = holdfast("run", "--join", ticket, "--", "touch", "started")
    assert done.returncode == codes.LOST
    assert who in done.stderr
    assert done.stderr.count("\n") == 1
    assert ticket not in done.stderr
    assert not (holdfast.folder / "started").exists()


def test_lost_while_joined(holdfast: Program) -> None:
    """When the first party ends the lease, the joined command is stopped and told."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k", ttl=1)
        joined = holdfast.start(
            "run", "--join", lease.ticket, "--", "sh", "-c", "echo up; sleep 60"
        )
        joined.says("up")
        lease.release()
        assert joined.code() == codes.LOST
        joined.says("lost the lease on 'k'")


def test_join_with_the_right_to_release(holdfast: Program) -> None:
    """A command that was given the right ends the lease with itself, for both."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k", ttl=1)
        done = holdfast("run", "--join", lease.share(release=True), "--", "true")
        assert (done.returncode, done.stderr) == (0, "")
        assert lease.lost.wait(10)
        assert locks.show("k").free


@pytest.mark.parametrize(
    "args",
    [
        ("--join", "nonsense"),
        ("--take", "nonsense"),
        ("--take", "SHARE"),
        ("--join", "SHARE", "--mode", "shared"),
        ("--join", "SHARE", "--ttl", "5"),
        ("--join", "SHARE", "--take", "SHARE"),
        ("other-key", "--join", "SHARE"),
    ],
)
def test_bad_use(holdfast: Program, args: tuple[str, ...]) -> None:
    """A ticket of the wrong kind, or with options that it decides itself, is a usage error."""
    with holdfast.locks() as locks, locks.acquire("k") as lease:
        given = [lease.ticket if arg == "SHARE" else arg for arg in args]
        done = holdfast("run", *given, "--", "true")
        assert (done.returncode, done.stderr.count("\n")) == (codes.USAGE, 1)
        assert lease.ticket not in done.stderr


def test_interpreter_path_has_no_spaces() -> None:
    """The scripts above put the interpreter's path into a shell command."""
    assert " " not in sys.executable
