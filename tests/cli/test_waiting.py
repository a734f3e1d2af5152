"""Two parties want the same lock: the second waits, and says for whom."""

from __future__ import annotations

import signal
import time

from tests.cli.program import Program, Started, until


def holder(holdfast: Program, *options: str) -> Started:
    """A first party that has the lock."""
    args = ("run", "nightly", "--owner", "first", *options)
    started = holdfast.start(*args, "--", "sh", "-c", "echo $HOLDFAST_FENCE; exec sleep 60")
    until(lambda: "\n" in started.out)
    return started


def waiter(holdfast: Program, *options: str) -> Started:
    """A second party that wants it."""
    args = ("run", "nightly", "--owner", "second", *options)
    return holdfast.start(*args, "--", "sh", "-c", "echo $HOLDFAST_FENCE")


def test_says_who_holds_it(holdfast: Program) -> None:
    """The one who waits says who holds the lock and for how much longer, once."""
    first, second = holder(holdfast), waiter(holdfast)
    second.says("waiting for 'nightly': held by first, free in ")
    first.send(signal.SIGINT)
    assert (first.code(), second.code()) == (130, 0)
    assert int(second.out) > int(first.out)
    assert second.err.count("\n") == 1


def test_says_when_the_holder_changes(holdfast: Program) -> None:
    """A new holder is a new line, with how many are ahead."""
    with holdfast.locks() as locks:
        lease = locks.acquire("nightly", owner="first")
        second = waiter(holdfast)
        second.says("held by first")
        ticket = lease.hand_over()
        with locks.take(ticket, owner="third"):
            second.says("held by third")
        assert second.code() == 0


def test_quiet(holdfast: Program) -> None:
    """With `--quiet` the wait is silent."""
    with holdfast.locks() as locks:
        with locks.acquire("nightly"):
            second = waiter(holdfast, "--quiet", "--fair")
            until(lambda: locks.show("nightly").waiters)
        assert (second.code(), second.err) == (0, "")


def test_verbose_does_not_say_it_twice(holdfast: Program) -> None:
    """With `--verbose` the log tells of the wait, and nothing else does."""
    with holdfast.locks() as locks:
        with locks.acquire("nightly", owner="first"):
            second = waiter(holdfast, "--verbose", "--fair")
            second.says("DEBUG Lock nightly is held by first")
        assert second.code() == 0
        assert "waiting for" not in second.err


def test_killed_holder_is_followed_within_the_ttl(holdfast: Program) -> None:
    """`kill -9` on the holder lets the next one in when its ttl is over."""
    first = holder(holdfast, "--ttl", "1")
    second = waiter(holdfast)
    second.says("held by first")
    first.send(signal.SIGKILL)
    killed_at = time.monotonic()
    assert second.code() == 0
    assert time.monotonic() - killed_at < 5
    assert int(second.out) > int(first.out)


def test_interrupted_wait_leaves_the_queue(holdfast: Program) -> None:
    """SIGTERM ends a wait with its code, and the place in the queue is given up."""
    with holdfast.locks() as locks, locks.acquire("nightly"):
        for signum in (signal.SIGTERM, signal.SIGINT):
            second = waiter(holdfast, "--fair")
            until(lambda: locks.show("nightly").waiters)
            second.send(signum)
            assert second.code() == 128 + signum
            assert locks.show("nightly").waiters == ()
            assert second.out == ""
