"""Ctrl-C at any point: the caller has the lease, or the lock is freed, or the ttl frees it;
and the interrupt is never swallowed."""

from __future__ import annotations

import linecache
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

import holdfast
from holdfast import Lease, Leases, Locks, Unavailable
from holdfast.core.events import StoreTrouble
from holdfast.core.records import NEVER
from holdfast.runtime.keeper_thread import LeaseRef
from holdfast.stores.memory import MemoryStore
from tests.helpers import until

SRC = str(Path(holdfast.__file__).parent)
When = str


class InterruptedStore(MemoryStore):
    """Raises KeyboardInterrupt from the n-th call of one kind, before or after its work."""

    def __init__(self) -> None:
        super().__init__()
        self.at: tuple[str, int, When] | None = None

    def _do(self, name: str, call: Callable[[], Any]) -> Any:
        if self.at is None or self.at[0] != name:
            return call()
        kind, left, when = self.at
        self.at = (kind, left - 1, when) if left else None
        if left:
            return call()
        if when == "after":
            call()
        raise KeyboardInterrupt

    def load(self, key: str, by: Any = NEVER) -> Any:
        """Perhaps."""
        return self._do("load", lambda: super(InterruptedStore, self).load(key, by))

    def swap(self, key: str, version: Any, record: Any, wake: Any = (), by: Any = NEVER) -> Any:
        """Perhaps."""
        call = super().swap
        return self._do("swap", lambda: call(key, version, record, wake, by))

    def wait(self, key: str, version: Any, token: str, at_most: int) -> None:
        """Perhaps."""
        call = super().wait
        self._do("wait", lambda: call(key, version, token, at_most))


@pytest.fixture
def store() -> InterruptedStore:
    """A store whose calls can be interrupted."""
    return InterruptedStore()


@pytest.fixture
def locks(store: InterruptedStore) -> Iterator[Locks]:
    """A client on it."""
    with Locks(store, ttl=60) as client:
        yield client


POINTS = [
    (name, n, when) for name in ("load", "swap") for n in (0, 1) for when in ("before", "after")
]


@pytest.mark.parametrize("point", POINTS)
def test_acquire(store: InterruptedStore, locks: Locks, point: tuple[str, int, str]) -> None:
    """An interrupted acquire leaves nothing behind."""
    store.at = point
    try:
        lease = locks.acquire("k")
    except KeyboardInterrupt:
        assert store.load("k").record.holders == ()
        assert len(locks._client.leases.keeper) == 0
    else:
        store.at = None
        assert lease.held


@pytest.mark.parametrize("point", POINTS)
def test_acquire_all(store: InterruptedStore, locks: Locks, point: tuple[str, int, str]) -> None:
    """An interrupted group leaves none of its locks behind, and nothing in the keeper."""
    store.at = point
    try:
        leases = locks.acquire_all(["a", "b"])
    except KeyboardInterrupt:
        for key in "ab":
            assert store.load(key).record.holders == ()
        assert len(locks._client.leases.keeper) == 0
    else:
        store.at = None
        assert leases.held


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", ["load", "swap"])
@pytest.mark.parametrize("call", ["release", "hand_over", "block"])
def test_endings(store: InterruptedStore, locks: Locks, call: str, at: str, when: str) -> None:
    """An interrupted release or hand-over frees the lock, whether or not its write landed, and
    also if it did not get as far as that."""
    lease = locks.acquire("k")
    if at == "load":
        locks._client.observations.forget("k")
    store.at = (at, 0, when)
    ending: Callable[[], object] = {
        "release": lease.release,
        "hand_over": lease.hand_over,
        "block": lambda: lease.__exit__(None, None, None),
    }[call]  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        ending()
    assert not lease.held
    assert store.load("k").record.holders == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("use", ["join", "take"])
def test_tickets(store: InterruptedStore, locks: Locks, use: str, when: str) -> None:
    """An interrupted join leaves the first party its lease; an interrupted take leaves the
    offer, or nothing."""
    lease = locks.acquire("k")
    ticket = lease.share() if use == "join" else lease.hand_over()
    store.at = ("swap", 0, when)
    with pytest.raises(KeyboardInterrupt):
        getattr(locks, use)(ticket)
    holders = store.load("k").record.holders
    if use == "join":
        assert lease.held
        assert [holder.fence for holder in holders] == [lease.fence]
    elif when == "before":
        assert [holder.offered for holder in holders] == [True]
        assert locks.take(ticket).held
    else:
        assert holders == ()


class GoneStore(InterruptedStore):
    """Cannot be reached any more once it was interrupted."""

    away = False

    def _do(self, name: str, call: Callable[[], Any]) -> Any:
        if self.away:
            raise Unavailable("away")
        try:
            return super()._do(name, call)
        except KeyboardInterrupt:
            self.away = True
            raise


@pytest.mark.parametrize("call", ["acquire", "release", "hand_over"])
def test_a_clean_up_that_fails(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of, and the interrupt comes out all the same; the ttl frees the lock."""
    monkeypatch.setattr("holdfast.runtime.cleaning.CLEAN_UP_FOR", 100_000)
    told: list[object] = []
    store = GoneStore()
    with Locks(store, ttl=60, on_event=told.append) as locks:
        lease = None if call == "acquire" else locks.acquire("k")
        store.at = ("swap", 0, "after")
        with pytest.raises(KeyboardInterrupt):
            locks.acquire("k") if lease is None else getattr(lease, call)()
        until(lambda: StoreTrouble("k", "away", "clean up", again=False) in told)


def test_wait_in_the_queue(store: InterruptedStore) -> None:
    """Who is interrupted while waiting in the queue leaves no place in it."""
    with Locks(store, ttl=60, pass_on=False) as locks, locks.acquire("k"):
        store.at = ("wait", 0, "before")
        with pytest.raises(KeyboardInterrupt):
            locks.acquire("k", fair=True)
        assert store.load("k").record.queue == ()


def test_exception_of_the_body_is_kept(locks: Locks) -> None:
    """A Ctrl-C in the body comes out of the block, and the lock is free."""
    with pytest.raises(KeyboardInterrupt):
        with locks.acquire("k"):
            signal.raise_signal(signal.SIGINT)
    assert locks.show("k").free


# --- at every line ----------------------------------------------------------------------------


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that runs in holdfast, on this thread."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.raised = ""

    def __enter__(self) -> Interrupt:
        sys.settrace(self._call)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        # Inside of a finalizer nobody gets an exception, and so no Ctrl-C either.
        callers = (code, frame.f_back.f_code if frame.f_back else code)
        finalizes = any(caller.co_name == "__del__" for caller in callers)
        if not code.co_filename.startswith(SRC) or finalizes:
            return None
        last = 0

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "line":
                came_from, last = last, frame.f_lineno
                self.left -= 1
                if self.left < 0 and not self.raised and not only_traced(frame, came_from):
                    self.raised = f"{code.co_filename}:{frame.f_lineno}"
                    raise KeyboardInterrupt
            return line

        return line


def only_traced(frame: FrameType, came_from: int) -> bool:
    """No Ctrl-C comes here, or not in the way in which a tracer can raise it."""
    return leaves_a_block(frame, came_from) or goes_round(frame, came_from)


def goes_round(frame: FrameType, came_from: int) -> bool:
    """Since Python 3.12 a comprehension runs in the frame around it. What a tracer raises between
    two of its rounds passes by the `except` of that frame; a Ctrl-C does not."""
    return sys.version_info >= (3, 12) and came_from == frame.f_lineno


def leaves_a_block(frame: FrameType, came_from: int) -> bool:
    """CPython hears no signal between a block's last call and its `__exit__`; only a tracer
    can raise there."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return line.startswith("with ") and came_from > frame.f_lineno


Act = Callable[[Locks], Any]


def acts(locks: Locks) -> dict[str, tuple[Act, Act]]:
    """What is prepared, and what is interrupted. The ttl is one that no busy machine outlasts:
    of several leases, one that ran out meanwhile would be told by `LeaseLost`."""
    return {
        "acquire": (lambda _: None, lambda _: locks.acquire("k", ttl=60)),
        "acquire_all": (lambda _: None, lambda _: locks.acquire_all(["k", "l"], ttl=60)),
        "release": (lambda _: locks.acquire("k", ttl=60), lambda lease: lease.release()),
        "hand_over": (lambda _: locks.acquire("k", ttl=60), lambda lease: lease.hand_over()),
        "take": (
            lambda _: locks.acquire("k", ttl=60).hand_over(),
            lambda ticket: locks.take(ticket),
        ),
    }


@pytest.mark.parametrize("act", ["acquire", "acquire_all", "release", "hand_over", "take"])
def test_at_every_line(act: str) -> None:
    """Whatever line of ours is interrupted: afterwards the caller has a lease, or the lock is
    free, or nobody renews it, so that the ttl frees it; and the interrupt comes through."""
    swallowed, kept = list[str](), list[str]()
    lines = 0
    store = MemoryStore()
    with Locks(store) as locks:
        prepare, run = acts(locks)[act]
        for n in range(2000):
            before = prepare(locks)
            got: Any = None
            with Interrupt(n) as interrupt:
                try:
                    got = run(before)
                except KeyboardInterrupt:
                    pass
                else:
                    if interrupt.raised:
                        swallowed.append(interrupt.raised)
            if not interrupt.raised:
                break
            lines += 1
            before = None
            _end(got)
            kept += _cared_for(locks, interrupt.raised)
            for key in "kl":
                locks.evict(key)
        else:
            raise AssertionError("it never ended")
    assert lines > 20
    assert swallowed == []
    assert kept == []


def _end(got: Any) -> None:
    if isinstance(got, (Lease, Leases)):
        got.release()


def _cared_for(locks: Locks, where: str) -> list[str]:
    """Holds that the keeper would go on renewing though nobody has their lease."""
    keeper = locks._client.leases.keeper
    dropped = {cast(LeaseRef, referent).hold for referent in keeper._dropped}
    return [where for hold in keeper.holds() if hold.state == "held" and hold not in dropped]


def open_below(path: Path) -> list[str]:
    """What this process has open in a directory, and the directory itself."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this very listing
            links.append(str(link.readlink()))
    return [link for link in links if link.startswith(str(path))]


@pytest.mark.parametrize("act", ["connect", "acquire", "release"])
def test_no_descriptor_is_left_at_any_line(act: str, tmp_path: Path) -> None:
    """The directory store opens files and, with fsync, the directory itself. Whatever line is
    interrupted, none stays open."""
    lines: list[str] = []
    for n in range(2000):
        connect = partial(holdfast.connect, f"file://{tmp_path}/{n}?fsync=on", ttl=60)
        with ExitStack() as stack:
            run: Callable[[], Any] = connect
            if act != "connect":
                run = partial(stack.enter_context(connect()).acquire, "k")
            if act == "release":
                run = run().release
            with Interrupt(n) as interrupt, suppress(KeyboardInterrupt):
                run()
        if not interrupt.raised:
            break
        lines.append(interrupt.raised)
    else:
        raise AssertionError("it never ended")
    assert len(lines) > 20
    with suppress(AssertionError):  # threads that had begun go on to their end
        until(lambda: not open_below(tmp_path))
    # A directory is named by the number of the line that was interrupted.
    left = [Path(path).relative_to(tmp_path).parts[0] for path in open_below(tmp_path)]
    assert [lines[int(number)] for number in left] == []


# --- real signals -----------------------------------------------------------------------------

PROGRAM = """
import signal, sys, holdfast
url, what = sys.argv[1:]
locks = holdfast.connect(url, owner="child", ttl=60)
try:
    if what == "wait":
        print("ready", flush=True)
        locks.acquire("k", fair=True)
    elif what == "hold":
        with locks.acquire("k"):
            print("ready", flush=True)
            signal.pause()
    else:
        print("ready", flush=True)
        while True:
            with locks.acquire("k"):
                pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def start(url: str, what: str) -> subprocess.Popen[str]:
    """A program that does this until it is interrupted."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, what], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def interrupt(program: subprocess.Popen[str]) -> None:
    """Press Ctrl-C, and see that it is heard."""
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=20)
    assert (out, program.returncode) == ("interrupted\n", 130)


def test_signal_while_holding(tmp_path: Path) -> None:
    """A holder that is interrupted frees its lock at once."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as locks:
        interrupt(start(url, "hold"))
        assert locks.show("k").free


def test_signal_while_waiting(tmp_path: Path) -> None:
    """A waiter that is interrupted leaves the queue at once."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as locks, locks.acquire("k"):
        program = start(url, "wait")
        until(lambda: locks.show("k").waiters)
        interrupt(program)
        assert locks.show("k").waiters == ()


def test_signal_in_a_tight_loop(tmp_path: Path) -> None:
    """Wherever in a loop of acquire and release it hits, at most the ttl holds the lock, and
    the lock is free again in nearly every case."""
    url = f"sqlite://{tmp_path}/locks.db"
    stuck = 0
    with holdfast.connect(url) as locks:
        for turn in range(6):
            program = start(url, "loop")
            time.sleep(0.02 + 0.007 * turn)
            interrupt(program)
            stuck += not locks.show("k").free
            locks.evict("k")
    assert stuck <= 2


def test_signal_in_this_thread_while_it_waits() -> None:
    """A signal wakes a blocking wait at once."""
    store = MemoryStore()
    with Locks(store, ttl=60) as locks, locks.acquire("k"):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            locks.acquire("k", timeout=30)
        timer.join()
        assert time.monotonic() - started < 15
        assert store.load("k").record.queue == ()
