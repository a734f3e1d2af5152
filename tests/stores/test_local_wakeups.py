"""Wake-ups between the processes of one machine: who is reached, and what if nobody can be."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.contract import Entry
from holdfast.core.records import Holder, Record
from holdfast.stores.waiting import local_poller, local_wakeups
from holdfast.stores.waiting.handles import WaitHandle
from holdfast.stores.waiting.local_poller import Intervals
from holdfast.stores.waiting.local_wakeups import (
    MOST_READ,
    MOST_SOCKETS,
    Inbox,
    LinuxInbox,
    address_of,
    open_inbox,
    open_socket,
    wait_for_wake,
    waits_here,
    wake,
)
from holdfast.stores.waiting.notices import inherited_by, notice_of, proof_of
from tests.helpers import until
from tests.stores.processes import start


def handle(token: str = "t", key: str = "k", notify: Any = bool) -> WaitHandle:
    """A call that waits."""
    return WaitHandle(key, 1, token, notify)


@pytest.fixture
def inbox() -> Iterator[LinuxInbox]:
    """One with sockets."""
    opened = LinuxInbox()
    yield opened
    opened.close()


# --- wake-ups -------------------------------------------------------------------------------


def test_a_wake_up_arrives_where_its_token_waits(inbox: LinuxInbox) -> None:
    """At that call and at no other, once for however many there were."""
    one, other = handle("one"), handle("other")
    inbox.open(one)
    inbox.open(other)
    for _ in range(3):
        wake(["one", "nobody"])
    assert inbox.wait(20) == [one]
    assert inbox.wait(0) == []


def test_a_call_that_is_gone_is_not_woken(inbox: LinuxInbox) -> None:
    """And whoever would wake it does not notice."""
    one = handle("one")
    inbox.open(one)
    inbox.forget(one)
    wake(["one"])
    assert inbox.wait(0) == []
    inbox.open(one)  # the name can be used again
    wake(["one"])
    assert inbox.wait(20) == [one]


def test_a_wait_can_be_interrupted(inbox: LinuxInbox) -> None:
    """It ends at once, and the next one does not."""
    for each in (inbox, Inbox()):
        each.interrupt()
        assert each.wait(60) == []
        started = time.monotonic()
        assert each.wait(0.05) == []
        assert time.monotonic() - started > 0.02


def test_the_name_of_a_socket_does_not_tell_the_token() -> None:
    """Every user of the machine can list the names."""
    token = "0123456789abcdef" * 2
    assert token.encode() not in address_of(token)
    assert address_of(token) != address_of(token[:-1])


def test_a_process_opens_only_so_many_sockets(inbox: LinuxInbox) -> None:
    """The calls beyond that are polled for."""
    handles = [handle(f"t{number}") for number in range(MOST_SOCKETS + 3)]
    for each in handles:
        inbox.open(each)
    wake([each.token for each in handles])
    assert set(inbox.wait(20)) == set(handles[:MOST_SOCKETS])


def test_two_calls_with_one_token(inbox: LinuxInbox) -> None:
    """The name is taken: one of them is woken, the other is polled for."""
    one, two = handle("same"), handle("same")
    inbox.open(one)
    inbox.open(two)
    wake(["same"])
    assert inbox.wait(20) == [one]
    inbox.forget(two)
    inbox.forget(one)


def test_a_child_leaves_the_parents_sockets_alone(inbox: LinuxInbox) -> None:
    """It closes its copies, and the parent goes on being woken."""
    one = handle("one")
    inbox.open(one)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if inbox._epoll.closed else 1)
    assert os.waitpid(pid, 0)[1] == 0
    wake(["one"])
    assert inbox.wait(20) == [one]


def test_a_child_does_not_wait_in_the_place_of_its_parent() -> None:
    """A call that waits in its own thread has its own socket. When it is over, or its process is,
    nobody waits there: whoever frees the lock would leave it to nobody."""
    opened = open_socket("one")
    assert opened is not None
    ends, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        os.read(ends, 1)
        os._exit(0)
    try:
        assert waits_here("one")
        wake(["one"])
        assert opened.recv(1) == b"1"
        opened.close()
        until(lambda: not waits_here("one"))
        again = open_socket("one")  # the name is free
        assert again is not None
        again.close()
    finally:
        os.close(end)
        os.close(ends)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("missing", ["epoll", "descriptors"])
def test_without_sockets_there_is_an_inbox_all_the_same(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gevent takes epoll away, and a process may have no descriptor left."""

    def fail() -> None:
        raise OSError(24, "Too many open files")

    if missing == "epoll":
        monkeypatch.delattr(select, "epoll")
    else:
        monkeypatch.setattr(select, "epoll", fail)
    assert type(open_inbox()) is Inbox


def test_nobody_fails_for_want_of_a_socket(
    inbox: LinuxInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who waits nor who frees a lock: polling must do."""

    def fail(*args: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", fail)
    inbox.open(handle("one"))
    wake(["one"])
    assert inbox.wait(0) == []


# --- wake-ups that bring the grant ----------------------------------------------------------

HEIR = Holder("one", 7, "me", "exclusive", 30, 1000, 1030, "beat")
GRANTED = Record(9, (HEIR,), updated_at=1000)
TOLD = inherited_by(GRANTED, "one")


def send(text: bytes, token: str) -> None:
    """Send anything to the one who waits with this token."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text, address_of(token))


@pytest.fixture
def one() -> Iterator[socket.socket]:
    """The socket of a call."""
    opened = open_socket("one")
    assert opened is not None
    yield opened
    opened.close()


def test_a_wake_up_brings_the_grant(one: socket.socket) -> None:
    """To its heir; to others it is a reason to look."""
    other = open_socket("other")
    assert other is not None
    with other:
        wake(["one", "other"], GRANTED)
        assert wait_for_wake(one, "one", 20) == TOLD is not None
        assert wait_for_wake(other, "other", 20) is None


def test_a_task_gets_the_grant_too(inbox: LinuxInbox) -> None:
    """Its handle says so; what a poll has shown is kept where the wake-up brings nothing."""
    waits, polled = handle("one"), handle("other")
    inbox.open(waits)
    inbox.open(polled)
    polled.found = shown = Entry(GRANTED, 1)
    wake(["one", "other"], GRANTED)
    assert set(inbox.wait(20) + inbox.wait(0)) == {waits, polled}
    assert waits.found == TOLD
    assert polled.found is shown


@pytest.mark.parametrize(
    "odd",
    [b"", b"1", b"x" * 100_000, notice_of(GRANTED, "one")[:-1], bytes(range(256))],
    ids=["empty", "plain", "long", "cut off", "binary"],
)
def test_odd_wake_ups_before_the_grant(odd: bytes, one: socket.socket) -> None:
    """They wake, and hide nothing that has come with them. (An empty one ends the reading.)"""
    send(odd, "one")
    assert wait_for_wake(one, "one", 20) is None
    send(odd, "one")
    wake(["one"], GRANTED)
    assert wait_for_wake(one, "one", 20) == (TOLD if odd else None)


def test_nobody_reads_without_end(one: socket.socket) -> None:
    """So many at a time, and a call that has ended its wait looks for itself."""

    class Endless:
        read = 0

        def recv(self, size: int) -> bytes:
            self.read += 1
            return b"1"

    endless = Endless()
    assert local_wakeups.read_wake_ups(endless, "one") is None  # type: ignore[arg-type]
    assert endless.read == MOST_READ


def test_an_older_release_is_woken_by_a_notice(one: socket.socket) -> None:
    """It reads one byte of each wake-up, and looks."""
    wake(["one"], GRANTED)
    assert len(one.recv(1)) == 1
    with pytest.raises(BlockingIOError):
        one.recv(1)


# --- stores ---------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, or a directory."""
    return f"sqlite://{tmp_path}/locks.db" if request.param == "sqlite" else f"file://{tmp_path}/d"


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first look at a key nobody looks again on its own."""
    monkeypatch.setattr(local_poller, "THIS_MACHINE", Intervals(0, 600, 600, 600))
    monkeypatch.setattr(local_poller, "RAREST_S", 600.0)


def wait_for(locks: holdfast.Locks, got: list[str], name: str) -> threading.Thread:
    """Acquire in a thread, and say so."""

    def run() -> None:
        with locks.acquire("k", ttl=60, timeout=100):
            got.append(name)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.usefixtures("no_polls")
def test_a_release_wakes_the_first_in_the_queue(url: str) -> None:
    """Without a single poll, one after the other."""
    got: list[str] = []
    with holdfast.connect(url) as a, holdfast.connect(url) as b, holdfast.connect(url) as c:
        lease = a.acquire("k", ttl=60)
        threads = []
        for number, locks in enumerate((b, c), 1):
            threads.append(wait_for(locks, got, f"{number}"))
            until(lambda number=number: len(a.show("k").waiters) == number)  # type: ignore[misc]
        time.sleep(0.2)  # they have looked once
        lease.release()
        for thread in threads:
            thread.join(60)
        assert got == ["1", "2"]


def test_without_wake_ups_polling_finds_the_change(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for processes in another network namespace, and on other systems."""
    monkeypatch.setattr(local_poller, "wake", lambda *told: None)
    monkeypatch.setattr(local_poller, "open_inbox", Inbox)
    got: list[str] = []
    with holdfast.connect(url) as a, holdfast.connect(url) as b, holdfast.connect(url) as c:
        lease = a.acquire("k", ttl=60)
        threads = []
        for number, locks in enumerate((b, c), 1):
            threads.append(wait_for(locks, got, f"{number}"))
            until(lambda number=number: len(a.show("k").waiters) == number)  # type: ignore[misc]
        lease.release()
        for thread in threads:
            thread.join(60)
        assert got == ["1", "2"]


def test_a_false_wake_up_lets_nobody_in(url: str) -> None:
    """It is a reason to look, and nothing else."""
    got: list[str] = []
    with holdfast.connect(url) as a, holdfast.connect(url) as b:
        with a.acquire("k", ttl=60):
            thread = wait_for(b, got, "b")
            until(lambda: len(a.show("k").waiters) == 1)
            (token,) = [one.token for one in b._client.store.load("k").record.queue]
            for _ in range(5):
                wake([token])
                time.sleep(0.02)
            assert got == []
        thread.join(60)
    assert got == ["b"]


def test_a_forged_notice_lets_nobody_in(url: str) -> None:
    """Not even one that knows all of the waiter's place except its token."""
    got: list[str] = []
    with holdfast.connect(url) as a, holdfast.connect(url) as b:
        with a.acquire("k", ttl=60) as held:
            thread = wait_for(b, got, "b")
            until(lambda: len(a.show("k").waiters) == 1)
            for _ in range(5):
                (place,) = b._client.store.load("k").record.queue
                fence = held.fence + 1
                text = f"{place.beat} {fence} {fence} {place.since} {2 * place.since} 0".encode()
                for token in (b"", b"guessed"):
                    with suppress(OSError):  # it looks just now, because of the one before
                        send(text + b" " + proof_of(token, text), place.token)
                time.sleep(0.02)
            assert got == []
        thread.join(60)
    assert got == ["b"]


def test_killed_waiters_are_passed_over(url: str) -> None:
    """The holder and the first five who wait die: the next one is served, by their ttl."""
    with holdfast.connect(url) as locks:
        locks.setup()
        takers = []
        for number in range(7):
            takers.append(start("hold", url, "k", "5"))
            until(lambda: _parties(locks) > number, seconds=60)  # noqa: B023
        for taker in takers[:6]:
            taker.kill()
        assert takers[6].stdout is not None
        assert takers[6].stdout.readline().startswith("held")
        takers[6].kill()
        for taker in takers:
            taker.communicate()


def _parties(locks: holdfast.Locks) -> int:
    shown = locks.show("k")
    return len(shown.holders) + len(shown.waiters)
