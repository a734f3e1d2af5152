"""`holdfast wait`: until nobody holds a lock, without taking it."""

from __future__ import annotations

import json
import signal

from holdfast.cli import codes
from tests.cli.program import Program


def test_a_free_lock(holdfast: Program) -> None:
    """There is nothing to wait for, and nothing to say."""
    done = holdfast("wait", "k")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert holdfast.json("ls") == []


def test_a_taken_lock(holdfast: Program) -> None:
    """It says who holds it, ends with the release, and has taken nothing."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k", owner="first")
        waiting = holdfast.start("wait", "k", "--json")
        waiting.says("waiting for 'k': held by first, free in ")
        assert locks.show("k").waiters == ()
        lease.release()
        assert waiting.code() == 0
        assert json.loads(waiting.out)["fence"] >= lease.fence  # see rule 3 of `rules`
        assert locks.show("k").free


def test_not_free_in_time(holdfast: Program) -> None:
    """75 after the timeout; with 0 at once; quiet but for the error."""
    with holdfast.locks() as locks, locks.acquire("k", owner="first"):
        for timeout, words in (("0", "is held by first"), ("50ms", "not free within 0.05 s")):
            done = holdfast("wait", "k", "--timeout", timeout, "--quiet")
            assert (done.returncode, done.stdout) == (codes.BUSY, "")
            assert words in done.stderr
            assert done.stderr.count("\n") == 1


def test_a_killed_holder(holdfast: Program) -> None:
    """`kill -9` on the holder ends the wait when its ttl is over."""
    holder = holdfast.start("run", "k", "--ttl", "1", "--", "sh", "-c", "echo up; exec sleep 60")
    holder.says("up")
    waiting = holdfast.start("wait", "k")
    waiting.says("waiting for")
    holder.send(signal.SIGKILL)
    assert waiting.code() == 0


def test_interrupted(holdfast: Program) -> None:
    """Ctrl-C ends it as it ends any program."""
    with holdfast.locks() as locks, locks.acquire("k"):
        waiting = holdfast.start("wait", "k")
        waiting.says("waiting for")
        waiting.send(signal.SIGINT)
        assert waiting.code() == 130
